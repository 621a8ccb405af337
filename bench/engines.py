"""Compares the two engines, the embedded one and a PJRT plugin, on the workloads of a benchmark harness: one table.

    python bench/engines.py --harness FOLDER [--workloads W1,W8] [--plugin LIBRARY.so] [--rounds 2]

FOLDER has a workloads.py with `REG[name].build(device)`: it gives a function that runs one step and returns a tensor.
Each engine runs in a process of its own (engines_worker.py), with an empty compile cache and, as in compare.py, with
warm malloc; the two take turns. The times mean little where other processes take more than a tenth of the processors.
The result after three steps is compared by its weighted sum; it may drift apart by rounding alone in a deep network
that trains. After the third step there must be one program per step, nothing compiled and no fallback.
Exit status: 0, or 1 if a workload failed on an engine or broke that rule.
"""

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from pages import WARM_MALLOC

ROOT = Path(__file__).resolve().parents[1]
WORKER = ROOT / "bench/engines_worker.py"
WORKLOADS = "W1,W3,W4,W5,W6a,W6b,W7,W7s,W8,W8fe"
ENGINES = ("embedded", "plugin")
CLEAN = 0.1  # share of the processors; samples that others disturbed more are set aside if three better ones exist
HEADINGS = ["workload", *(f"{engine} ms" for engine in ENGINES), "plugin / embedded"]
HEADINGS += ["first s", "peak RSS MB", "others' CPU", "checks", "difference"]


def say(text: str) -> None:
    """Progress; stdout has the table alone."""
    print(text, file=sys.stderr, flush=True)


class WorkerError(Exception):
    """An engine cannot run a workload; the text says why."""


class Worker:
    """One workload on one engine, in a process of its own."""

    def __init__(self, engine: str, workload: str, options):
        self._timeout = options.timeout
        self._cache = tempfile.TemporaryDirectory(prefix="cache_")
        self._errors = tempfile.TemporaryFile("w+")
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, **WARM_MALLOC, "PJRT_DEVICE": "CPU"}
        environment["XLA_PERSISTENT_CACHE_PATH"] = self._cache.name
        if engine == "plugin":
            environment.update(PJRT_DEVICE="LIBRARY", PJRT_LIBRARY_PATH=options.plugin)
        command = [sys.executable, WORKER, options.harness, workload]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self._process = subprocess.Popen(command, env=environment, text=True, **pipes)
        self.info, self.samples = {}, []

    def _reason(self) -> str:
        """The last line that the ended process wrote to stderr, for a cell of the table."""
        status = self._process.wait(10)
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        text = lines[-1] if lines and status > 0 else f"ended with status {status}"
        return text.replace("|", "/")[:200]

    def _read(self) -> dict:
        ready, _, _ = select.select([self._process.stdout], [], [], self._timeout)
        if not ready:
            raise WorkerError(f"no answer in {self._timeout:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(self._reason())
        return json.loads(line)

    def warm(self) -> None:
        """Waits for the first steps."""
        self.info = self._read()

    def turn(self, seconds: float) -> None:
        """Takes samples for about `seconds`."""
        try:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._reason()) from None
        answer = self._read()
        self.samples += answer["samples"]
        self.info.update(peak_mb=answer["peak_mb"], **summary(self.samples))

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        self._errors.close()
        self._cache.cleanup()


def summary(samples: list) -> dict:
    """The medians of time and disturbance, of the samples that other processes disturbed least."""
    clean = [sample for sample in samples if sample[1] <= CLEAN]
    times, others = zip(*(clean if len(clean) >= 3 else samples))
    return {"ms": statistics.median(times), "others": statistics.median(others)}


def attempt(failures: dict, engine: str, action, *arguments) -> None:
    """Runs the action unless the engine has failed; notes its failure."""
    if engine in failures:
        return
    try:
        action(*arguments)
    except WorkerError as error:
        failures[engine] = str(error)
        say(f"  {engine}: {error}")


def compare(workload: str, options) -> tuple[dict, dict]:
    """What each engine measured, and why an engine failed."""
    workers, failures = {}, {}
    try:
        for engine in ENGINES:
            say(f"{workload}: {engine}")
            workers[engine] = Worker(engine, workload, options)
            attempt(failures, engine, workers[engine].warm)
        for _ in range(options.rounds):
            for engine, worker in workers.items():
                attempt(failures, engine, worker.turn, options.seconds)
        return {engine: worker.info for engine, worker in workers.items() if engine not in failures}, failures
    finally:
        for worker in workers.values():
            worker.close()


def relative_difference(a: float, b: float) -> float:
    """|a - b| over the larger magnitude; 0 for equal numbers."""
    return abs(a - b) / max(abs(a), abs(b)) if a != b else 0.0


def row(workload: str, infos: dict, failures: dict) -> list[str]:
    """The workload's cells; what only both engines together tell is empty where one failed."""

    def both(key: str, form: str) -> str:
        return " / ".join(format(infos[engine][key], form) if engine in infos else "-" for engine in ENGINES)

    times = [f"{infos[e]['ms']:.3f}" if e in infos else f"failed: {failures[e]}" for e in ENGINES]
    ratio = difference = "-"
    if not failures:
        first, second = (infos[engine] for engine in ENGINES)
        ratio = f"{second['ms'] / first['ms']:.2f}"
        difference = f"{relative_difference(first['check'], second['check']):.1e}"
    more = [both("first_s", ".2f"), both("peak_mb", "d"), both("others", ".0%"), both("check", ".6g")]
    return [workload, *times, ratio, *more, difference]


def faults(workload: str, infos: dict, failures: dict) -> list[str]:
    """What is wrong with the workload, a line each."""
    lines = [f"{workload} failed on the {engine} engine" for engine in failures]
    return lines + [f"{workload}, {engine} engine: {text}" for engine, info in infos.items() for text in info["broken"]]


def print_row(cells: list[str]) -> None:
    """Prints a line of the Markdown table."""
    print(f"| {' | '.join(cells)} |", flush=True)


def find_plugin() -> str:
    """The plugin that tools/compilers/wheels.py has fetched or fetches now."""
    done = subprocess.run([sys.executable, ROOT / "tools/compilers/wheels.py"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit("tools/compilers/wheels.py has no plugin (its reason is above); name one with --plugin")
    return done.stdout.strip()


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--harness", required=True, help="folder with workloads.py")
    parser.add_argument("--workloads", default=WORKLOADS, help="names in workloads.py; default: %(default)s")
    parser.add_argument("--plugin", help="PJRT plugin; default: that of tools/compilers/wheels.py")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each engine; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn; default: %(default)s")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for the first six steps; default: 300")
    options = parser.parse_args()
    if not Path(options.harness, "workloads.py").is_file():
        parser.error(f"--harness {options.harness}: there is no workloads.py in it")
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least one is needed")
    return options


def main() -> int:
    """Prints the table and what is wrong; returns the exit status."""
    options = read_options()
    options.plugin = options.plugin or find_plugin()
    print_row(HEADINGS)
    print_row(["---"] * len(HEADINGS))
    found = []
    for workload in options.workloads.split(","):
        infos, failures = compare(workload, options)
        print_row(row(workload, infos, failures))
        found += faults(workload, infos, failures)
    print("\nPairs: embedded / plugin. One program per step, nothing compiled after the third step, no fallback:")
    print("; ".join(found) or "yes, everywhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
