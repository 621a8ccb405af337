#!/usr/bin/env python3
"""Runs test files of PyTorch on the device `xla`, and writes a page that says what became of each test.

FOLDER is the folder `test` of a checkout of the release that is installed, or any folder with files of that form. Which
files, and which of their tests cannot apply, stands in a list: pytorch_tests.toml beside this file (`--list pytorch`),
pytorch_xla_tests.toml (`--list xla`, the tests of pytorch/xla), or another file of that form.

    .venv/bin/python tools/run_pytorch_tests.py pytorch/test --files 'test_view_ops.py' 'nn/*' --page page.md

Tests run in processes of their own. When one dies, or a test takes longer than `--timeout`, that test counts as crashed
or timed out, and another process goes on behind it. The exit status is 0 if no test failed.
"""

import argparse
import fnmatch
import json
import sys
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytorch_tests_settings
import tomllib
from compilers import wheels
from pytorch_tests_page import BAD, FileReport, write_page
from pytorch_tests_process import Job, Process, run_shard, stopping
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

TOOLS = Path(__file__).resolve().parent
LISTS = {"pytorch": TOOLS / "pytorch_tests.toml", "xla": TOOLS / "pytorch_xla_tests.toml"}
SHARD = 2000  # tests of a process, unless --shards says otherwise


def is_like(name: str, patterns: str | list[str]) -> bool:
    """True if a shell pattern fits the name."""
    return any(
        fnmatch.fnmatchcase(name, pattern) for pattern in ([patterns] if isinstance(patterns, str) else patterns)
    )


class TestList:
    """A list of files and of the tests that cannot apply."""

    def __init__(self, path: Path):
        self._data = tomllib.loads(path.read_text(encoding="utf-8"))
        self.title, self.about = self._data["title"], self._data.get("about", "")
        self.page = TOOLS.parent / self._data["page"]
        self._files: dict[str, dict] = self._data["files"]
        self._used: set[int] = set()  # rules that fit a test

    def find_files(self, patterns: list[str]) -> list[str]:
        """The files that fit one of the patterns; all if there are none."""
        return [file for file in self._files if not patterns or is_like(file, patterns)]

    def find_environment(self, file: str) -> dict[str, str]:
        """Variables of all files and of this one, one with its settings. UnavailableError: its plugin cannot be had."""
        settings = {name: value for name, value in self._files[file].items() if name in pytorch_tests_settings.NAMES}
        variables = {pytorch_tests_settings.VARIABLE: json.dumps(settings)}
        if devices := self.find_plugin_devices(file):
            variables["PJRT_DEVICE"], variables["PJRT_LIBRARY_PATH"] = "LIBRARY", str(wheels.fetch(wheels.CPU))
            variables["PJRT_LIBRARY_OPTIONS"] = f"cpu_device_count={devices}"
        return {**variables, **self._data.get("environment", {}), **self._files[file].get("environment", {})}

    def find_plugin_devices(self, file: str) -> int:
        """With how many devices of a plugin the file runs; 0: with the default device."""
        return self._files[file].get("plugin_devices", 0)

    def find_hardware(self, file: str) -> str:
        """The hardware that the file is made to see; empty for the real one."""
        return self._files[file].get("hardware", "")

    def choose(self, names: list[str], report: FileReport) -> list[str]:
        """Those of the file's tests that are to run. The report takes the others."""
        settings = self._files[report.file]
        only = settings.get("only", self._data.get("only", "*"))
        rules = [*settings.get("exclude", []), *self._data.get("exclude", [])]
        chosen = []
        for name in names:
            if not is_like(name, only):
                report.left_out += 1
            elif rule := next((rule for rule in rules if is_like(name, rule["tests"])), None):
                report.excluded.setdefault(rule["reason"], []).append(name)
                self._used.add(id(rule))
            else:
                chosen.append(name)
        return chosen

    def find_unused(self, files: list[str]) -> list[str]:
        """The patterns of rules for these files that fitted no test; those for all files if all ran."""
        rules = [rule for file in files for rule in self._files[file].get("exclude", [])]
        rules += self._data.get("exclude", []) if len(files) == len(self._files) else []
        return [str(rule["tests"]) for rule in rules if id(rule) not in self._used]


class Run:
    """Runs files in shards, several at a time, and collects what becomes of their tests."""

    def __init__(self, options: argparse.Namespace, tests: TestList, progress: Progress):
        self._options, self._tests, self._progress = options, tests, progress
        self._bar = progress.add_task("", total=0, bad=0)
        self._lock = threading.Lock()  # of what follows, and of the reports
        self._bad = 0
        self._futures: set[Future] = set()
        self._pool = ThreadPoolExecutor(options.jobs)

    def run(self, files: list[str]) -> list[FileReport]:
        """The reports of the files."""
        tests = self._tests
        reports = [FileReport(file, tests.find_hardware(file), tests.find_plugin_devices(file)) for file in files]
        try:
            for report in reports:
                self._submit(self._run_file, report)
            while pending := self._pending():
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    future.result()
        finally:  # also on Ctrl-C
            stopping.set()
            self._pool.shutdown(cancel_futures=True)
        for report in reports:
            report.results.sort(key=lambda result: result.name)
        return reports

    def _submit(self, function, *args) -> None:
        with self._lock:
            self._futures.add(self._pool.submit(function, *args))

    def _pending(self) -> set[Future]:
        with self._lock:
            for future in [future for future in self._futures if future.done()]:
                self._futures.remove(future)
                future.result()
            return set(self._futures)

    def _run_file(self, report: FileReport) -> None:
        """Loads a file and runs the first shard; the others wait for their turn."""
        options = self._options
        try:
            environment = self._tests.find_environment(report.file)
        except wheels.UnavailableError as error:
            report.problem = str(error)
            return
        job = Job(options.folder, report.file, environment, options.timeout, options.load_timeout)
        self._progress.update(self._bar, description=report.file)
        if not (options.folder / report.file).is_file():
            report.problem = "the folder has no such file"
            return
        process = Process(job)
        if process.names is None:
            report.problem = process.problem
            process.close()
            return
        names = self._tests.choose(process.names, report)
        size = -(-len(names) // options.shards) if options.shards else SHARD
        shards = [names[i : i + size] for i in range(0, len(names), max(1, size))]
        with self._lock:
            self._progress.update(self._bar, total=self._progress.tasks[self._bar].total + len(names))
        for shard in shards[1:]:
            self._submit(self._run_shard, job, report, shard)
        if shards:
            self._run_shard(job, report, shards[0], process)
        else:
            process.close()

    def _run_shard(self, job: Job, report: FileReport, names: list[str], process: Process | None = None) -> None:
        results = {}
        for result in run_shard(job, names, process):
            results[result.name] = result
            with self._lock:
                self._bad += result.outcome in BAD
                self._progress.update(self._bar, description=report.file, bad=self._bad, advance=1)
        with self._lock:
            report.results += results.values()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder with the test files")
    parser.add_argument("--list", default="pytorch", metavar="LIST", help="pytorch (the default), xla or a file")
    parser.add_argument("--files", nargs="+", default=[], metavar="PATTERN", help="only files of the list that fit")
    parser.add_argument(
        "--shards", type=int, default=0, metavar="N", help=f"parts of each file; else {SHARD} tests each"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at a time (1)")
    parser.add_argument("--timeout", type=float, default=300, metavar="S", help="seconds that a test may take (300)")
    parser.add_argument(
        "--load-timeout", type=float, default=900, metavar="S", help="that a file's import may take (900)"
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="where the page goes instead of docs/")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is no folder")
    return options


def main() -> int:
    options = parse()
    tests = TestList(LISTS.get(options.list, Path(options.list)))
    files = tests.find_files(options.files)
    bars = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[bad]} bad")]
    with Progress(*bars, TimeElapsedColumn()) as progress:
        reports = Run(options, tests, progress).run(files)
    page = options.page or tests.page
    command = "tools/run_pytorch_tests.py" + (f" --list {options.list}" if options.list in ("xla",) else "")
    page.write_text(write_page(tests.title, tests.about, command, reports), encoding="utf-8")
    numbers = {outcome: sum(report.count(outcome) for report in reports) for outcome in ["passed", *BAD]}
    print(f"wrote {page.name}:", ", ".join(f"{number} {outcome}" for outcome, number in numbers.items()))
    for pattern in tests.find_unused([report.file for report in reports if not report.problem]):
        print(f"a rule of the list fits no test: {pattern}")
    return 1 if sum(numbers[outcome] for outcome in BAD) or any(report.problem for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
