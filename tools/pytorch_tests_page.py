"""The page that run_pytorch_tests.py writes: what became of the tests of each file."""

import collections
from collections.abc import Iterator
from dataclasses import dataclass, field

from pytorch_tests_process import Result

BAD = ["failed", "crashed", "timed out"]


@dataclass
class FileReport:
    """What became of the tests of a file."""

    file: str
    hardware: str = ""  # which the file was made to see, if any
    plugin_devices: int = 0  # of XLA's CPU client as a plugin; 0: it ran on the default device
    results: list[Result] = field(default_factory=list)
    excluded: dict[str, list[str]] = field(default_factory=dict)  # names by reason
    left_out: int = 0  # tests that are not for the device
    problem: str = ""  # why the file could not be run

    def count(self, *outcomes: str) -> int:
        """How many tests had one of the outcomes."""
        return sum(result.outcome in outcomes for result in self.results)

    def cells(self) -> list[int]:
        """The file's numbers, in the order of the table."""
        fallbacks = sum(bool(result.fallbacks) for result in self.results)
        excluded = sum(map(len, self.excluded.values()))
        counts = (self.count("passed"), self.count(*BAD), self.count("skipped"))
        return [*counts, excluded, self.left_out, fallbacks]


def cell(text: object) -> str:
    """Text for a cell of a table."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(head: list[str], rows: list[list]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    yield from ("| " + " | ".join(map(cell, row)) + " |" for row in rows)
    yield ""


def overview(reports: list[FileReport]) -> Iterator[str]:
    """A row for each file, and their sum."""
    head = ["file", "passed", "did not pass", "skipped", "excluded", "left out", "fell back"]
    rows = [[report.file, *(["-"] * 6 if report.problem else report.cells())] for report in reports]
    total = [sum(numbers) for numbers in zip(*(report.cells() for report in reports))] or [0] * 6
    yield from table(head, [*rows, ["all", *total]])


def shares(reports: list[FileReport]) -> str:
    """How many of the tests passed, and what became of the others."""
    passed, skipped = (sum(report.count(outcome) for report in reports) for outcome in ("passed", "skipped"))
    bad = sum(report.count(*BAD) for report in reports)
    excluded = sum(len(names) for report in reports for names in report.excluded.values())
    total = max(1, passed + bad + skipped + excluded)
    numbers = {"passed": passed, "did not pass": bad, "skip themselves": skipped, "are excluded": excluded}
    parts = ", ".join(f"{number} {what} ({number / total:.1%})" for what, number in numbers.items())
    return f"Of {total} tests {parts}."


def reasons_to_skip(report: FileReport) -> Iterator[str]:
    """Which tests were skipped by themselves, by reason: the most frequent ones."""
    reasons = collections.Counter(result.text for result in report.results if result.outcome == "skipped")
    if reasons:
        rows = [[number, text or "no reason given"] for text, number in reasons.most_common(8)]
        yield from table(["skipped", "because"], rows)


def section(report: FileReport) -> Iterator[str]:
    """What else there is to tell of a file."""
    yield from [f"## {report.file}", ""]
    if report.problem:
        yield from [f"Not run: {report.problem}", ""]
        return
    if report.hardware:
        yield from [f"Told that the hardware is {report.hardware}, without which it tests nothing.", ""]
    if report.plugin_devices:
        yield from [f"On {report.plugin_devices} devices of XLA's CPU client, as a plugin.", ""]
    if report.excluded:
        yield from table(["excluded", "because"], [[len(names), reason] for reason, names in report.excluded.items()])
    yield from reasons_to_skip(report)
    fallbacks = collections.Counter(name for result in report.results for name in result.fallbacks)
    if fallbacks:
        texts = [f"`{name.removeprefix('aten::')}` {number}" for name, number in sorted(fallbacks.items())]
        yield from ["Operations that ran on the CPU, and in how many tests: " + ", ".join(texts), ""]
    bad = [result for outcome in BAD for result in report.results if result.outcome == outcome]
    if bad:
        yield from table(["test", "", "what happened"], [[f"`{r.name}`", r.outcome, r.text] for r in bad])


def write_page(title: str, about: str, command: str, reports: list[FileReport]) -> str:
    """The text of the page."""
    has_more = [
        report
        for report in reports
        if report.problem
        or report.hardware
        or report.plugin_devices
        or report.excluded
        or report.count(*BAD, "skipped")
        or report.cells()[-1]
    ]
    lines = [
        f"# {title}",
        "",
        *([*about.strip().splitlines(), ""] if about else []),
        f"Written by `{command}`. *Did not pass*: it failed, crashed or timed out; the file's",
        "section says which. *Skipped*: the test skips itself. *Excluded*: the list says that it cannot apply, and",
        "why. *Left out*: tests of the file that are not for the device. *Fell back*: tests where an operation ran on",
        "the CPU, whatever became of them; reading a number is none.",
        "",
        *overview(reports),
        shares(reports),
        "",
        *(line for report in has_more for line in section(report)),
    ]
    return "\n".join(lines).rstrip() + "\n"
