"""The report of explain(): why the last steps compiled, waited and fell back; as text and as a page."""

import html
import json
import os
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from ._findings import find_all, Finding
from ._history import Compile, Event, source_of, split_line, Step
from ._programs import ProgramReport

_TEMPLATE = Path(__file__).with_name("explain.html")
_MOST_PLACES = 10  # whose compiles the text lists


def _short(line: str) -> str:
    """The line with its path relative to the current directory, if that is shorter."""
    file, _ = split_line(line)
    if not file or not os.path.isabs(file):
        return line
    near = os.path.relpath(file)
    return f"{near if len(near) < len(file) else file}{line[len(file) :]}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _cost_text(compiles: list[Compile]) -> str:
    """How many, and the time that they took."""
    return f"{_times(len(compiles), 'program')}, {_milliseconds(sum(each.seconds for each in compiles))}"


class Report:
    """The result of explain().

    `str(report)` is the text, and a notebook shows the page. Times are in seconds.

    Attributes:
        findings: the mistakes, the most expensive first.
        steps: its steps, for each device in order.
        programs: what the compiler says of each program, if the device is compiled for and not there.
    """

    def __init__(self, steps: list[Step], programs: list[ProgramReport] | None = None):
        self.steps = steps
        self.programs = programs or []
        self.findings: list[Finding] = find_all(steps)

    @property
    def compiles(self) -> list[Compile]:
        """The programs that the steps have compiled, with the reason of each."""
        return [reason for step in self.steps for reason in step.compiles]

    @property
    def fallbacks(self) -> list[Event]:
        """The operations that ran on the CPU."""
        return [event for step in self.steps for event in step.of("fallback")]

    @property
    def replicated(self) -> list[Event]:
        """The operations over processes that each process computed whole."""
        return [event for step in self.steps for event in step.of("replicated")]

    @property
    def reads(self) -> list[Event]:
        """The program's reads from the device, without fallbacks' operands."""
        return [event for step in self.steps for event in step.of("download")]

    def _cuts(self) -> list[Event]:
        return [event for step in self.steps for event in step.of("sync") if event.by_cut]

    def __str__(self) -> str:
        return "\n".join(self._text())

    def __repr__(self) -> str:
        causes = ", ".join(dict.fromkeys(finding.cause for finding in self.findings)) or "none"
        return f"<{self._title()}; mistakes: {causes}; print() shows them>"

    def _repr_html_(self) -> str:
        """The page in a frame for a notebook, where its scripts run; the text if frames are removed."""
        page, text = (html.escape(part) for part in (self._page(), str(self)))
        style = "width: 100%; height: 720px; border: 0; resize: vertical"
        return (
            f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'
            f"<details><summary>The report as text</summary><pre>{text}</pre></details>"
        )

    def _text(self) -> Iterator[str]:
        if not self.steps:
            yield "torch_xla.debug.explain(): nothing has run on the device yet"
            yield from (str(program) for program in self.programs)
            return
        names = ", ".join(f"xla:{device}" for device in self._devices())
        yield f"torch_xla.debug.explain(): the last {_times(len(self.steps), 'step')} of {names}"
        yield ""
        if not self.findings:
            yield "No mistakes found."
        for number, finding in enumerate(self.findings, 1):
            yield from self._finding_text(number, finding)
        yield from self._compile_text()
        yield from (str(program) for program in self.programs)
        reads = [(step.syncs_within(event), event) for step in self.steps for event in step.of("download")]
        yield from self._event_text("Ran on the CPU", self.fallbacks)
        yield from self._event_text("Ran on the whole values in each process", self.replicated)
        yield from self._event_text(
            "Early reads, for which what was recorded so far ran", [e for is_early, e in reads if is_early]
        )
        yield from self._event_text("Other reads", [e for is_early, e in reads if not is_early])
        yield from self._event_text("Traces that were cut for their length", self._cuts())
        yield from self._time_text()

    @staticmethod
    def _place_text(word: str, line: str) -> Iterator[str]:
        if line:
            yield f"     {word} {_short(line)}"
            if source := source_of(line):
                yield f"        {source}"

    def _finding_text(self, number: int, finding: Finding) -> Iterator[str]:
        yield f"{number}. {finding.cause}: {finding.what}"
        yield from self._place_text("at", finding.line)
        yield from self._place_text("and", finding.other_line if finding.other_line != finding.line else "")
        yield f"     {_times(finding.count, 'time')}, {_milliseconds(finding.seconds)}, in {_numbers(finding.steps)}"
        yield f"     Do: {finding.advice}."
        yield ""

    def _compile_text(self) -> Iterator[str]:
        if not self.compiles:
            yield "Compiled: nothing, all programs were known."
            return
        yield f"Compiled: {_cost_text(self.compiles)}"
        if shapes := [reason for reason in self.compiles if reason.kind == "shape"]:
            yield f"  for other shapes: {_cost_text(shapes)}"
        groups: dict[tuple, list[Compile]] = defaultdict(list)
        for reason in self.compiles:
            groups[reason.device, reason.line, reason.line_before].append(reason)
        costly = sorted(groups.values(), key=lambda group: -sum(reason.seconds for reason in group))
        for group in costly[:_MOST_PLACES]:
            yield from self._compiled_place_text(group)
        if rest := costly[_MOST_PLACES:]:
            others = [reason for group in rest for reason in group]
            yield f"  at {_times(len(rest), 'other place')}: {_cost_text(others)}"

    def _compiled_place_text(self, group: list[Compile]) -> Iterator[str]:
        """The programs of one device that differ from others at the same pair of lines: the costliest as example."""
        costliest = max(group, key=lambda reason: reason.seconds)
        steps = _numbers([reason.step for reason in group])
        cost = f", {_milliseconds(costliest.seconds)}:" if len(group) == 1 else f": {_cost_text(group)}, for example"
        yield f"  xla:{costliest.device} {steps}{cost} {costliest.what}"
        yield from (f"  {text}" for text in self._place_text("at", costliest.line))
        if costliest.line_before != costliest.line:
            yield from (f"  {text}" for text in self._place_text("before at", costliest.line_before))

    @staticmethod
    def _event_text(title: str, events: list[Event]) -> Iterator[str]:
        groups: dict[tuple, list[Event]] = defaultdict(list)
        for event in events:
            groups[event.line, event.name].append(event)
        if groups:
            yield f"{title}:"
        for (line, name), seen in groups.items():
            seconds = _milliseconds(sum(event.seconds for event in seen))
            place = _short(line) or "an unknown line"
            yield f"  {_times(len(seen), 'time')}, {seconds}: {name or 'a tensor'} at {place}"

    def _devices(self) -> list[int]:
        return sorted({step.device for step in self.steps})

    def _time_text(self) -> Iterator[str]:
        for device in self._devices():
            steps = [s for s in self.steps if s.device == device and s.ended and not s.compiles]
            if steps:
                parts = [f"{name} {_milliseconds(_median(steps, phase))}" for phase, name in _PARTS.items()]
                yield f"A step of xla:{device} that compiles nothing: {', '.join(parts)} (medians)"

    def save_html(self, path: str | os.PathLike) -> None:
        """Writes the report as one page with a timeline. The page needs no network and no other file.

        Raises OSError if the file cannot be written.
        """
        Path(path).write_text(self._page(), encoding="utf-8")

    def _page(self) -> str:
        start = min((step.start_ns for step in self.steps), default=0)
        data = {
            "text": str(self),
            "times": list(self._time_text()),
            "findings": [_finding_data(finding) for finding in self.findings],
            "steps": [_step_data(step, start) for step in self.steps],
        }
        # The text of a script ends at "</" and nowhere else.
        script = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
        page = _TEMPLATE.read_text(encoding="utf-8").replace("@TITLE@", html.escape(self._title()))
        return page.replace("@DATA@", script)

    def _title(self) -> str:
        return str(self).split("\n", 1)[0]


# The parts of a step's time, in the text's words.
_PARTS = {"trace": "recording", "sync": "sync", "run": "run", "wait": "waiting", "download": "reading"}


def _median(steps: list[Step], phase: str) -> float:
    return statistics.median(sum(event.seconds for event in step.of(phase)) for step in steps)


def _numbers(steps: list[int]) -> str:
    """As "steps 3 to 9" or "steps 2, 5"."""
    if len(steps) == 1:
        return f"step {steps[0]}"
    if len(set(steps)) > 4:
        return f"{len(set(steps))} of the steps {min(steps)} to {max(steps)}"
    return "steps " + ", ".join(str(number) for number in sorted(set(steps)))


def _finding_data(finding: Finding) -> dict:
    return {
        "cause": finding.cause,
        "what": finding.what,
        "line": _short(finding.line),
        "source": source_of(finding.line),
        "other": _short(finding.other_line) if finding.other_line != finding.line else "",
        "otherSource": source_of(finding.other_line),
        "advice": finding.advice,
        "count": finding.count,
        "ms": finding.seconds * 1e3,
        "steps": finding.steps,
        "where": _numbers(finding.steps),
        "devices": finding.devices,
    }


def _event_data(event: Event, start_ns: int) -> dict:
    data = {"phase": event.phase, "start": (event.start_ns - start_ns) / 1e6, "ms": event.seconds * 1e3}
    optional = {"name": event.name, "detail": event.detail, "line": _short(event.line), "source": source_of(event.line)}
    numbers = {"bytes": event.bytes, "nodes": event.nodes}
    data.update({key: text for key, text in optional.items() if text})
    data.update({key: number for key, number in numbers.items() if number >= 0})
    return data


def _step_data(step: Step, start_ns: int) -> dict:
    reasons = [
        {
            "what": reason.what,
            "line": _short(reason.line),
            "source": source_of(reason.line),
            "before": _short(reason.line_before),
            "ms": reason.seconds * 1e3,
            "nodes": reason.nodes,
        }
        for reason in step.compiles
    ]
    events = [_event_data(event, start_ns) for event in step.events if not event.inner]
    return {"number": step.number, "device": step.device, "compiles": reasons, "events": events}
