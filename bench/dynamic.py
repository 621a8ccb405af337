"""Compares programs whose shapes change with eager, from the first use of the device to the last value, as a page.

    python bench/dynamic.py --warm --many --page docs/changing_shapes_cost.md
    python bench/dynamic.py --only rollout,masks --rounds 1

Each run is a process of its own (dynamic_cases.py). Eager, the device with an empty directory of compiled kernels and
programs, and with --warm the device again with that directory take turns; the ratios are those of the medians. The
programs that need another library run in the environment that `make test-libraries` makes, or are skipped.
Exit status: 0, or 1 if a program failed or its values are not eager's.
"""

import argparse
import collections
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from dynamic_cases import Case, CASES
from pages import load, load_line, machine, make_parser, show, WARM_MALLOC
from rich.progress import track

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import setup_libraries  # noqa: E402

WORKER = ROOT / "bench/dynamic_cases.py"
TOLERANCE = 1e-3  # of a value
SMALLEST = 1e-3  # values below are compared as if they were this large
LONGEST = 3600  # seconds of a run
LONG = ("many",)


class RunError(Exception):
    """A program failed; the text says why."""


class MissingError(RunError):
    """A program's library is not there."""


# ---- Runs ----
def find_python(case: Case) -> str:
    """The interpreter that has the case's library. MissingError if there is none."""
    if case.library is None or importlib.util.find_spec(case.library):
        return sys.executable
    if setup_libraries.is_ready(case.library):
        return str(setup_libraries.find_python(case.library))
    raise MissingError(f"skipped: no {case.library}, `make test-libraries` brings it")


def steps_of(name: str, options: argparse.Namespace) -> int:
    """How many steps the case takes."""
    return min(CASES[name].steps, options.steps or CASES[name].steps)


def run(name: str, device: str, options: argparse.Namespace, cache: str) -> dict:
    """What a run of the case in a fresh process found. RunError with its last line if it failed."""
    environment = {**os.environ, **WARM_MALLOC, "XLA_PERSISTENT_CACHE_PATH": cache, "HF_HUB_OFFLINE": "1"}
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    command = [find_python(CASES[name]), WORKER, name, device, str(steps_of(name, options)), str(options.threads)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        raise RunError(f"failed on {device}: no end in {LONGEST} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise RunError(f"failed on {device}: {lines[-1].replace('|', '/')}")
    return json.loads(done.stdout.splitlines()[-1])


def take_turn(name: str, options: argparse.Namespace) -> dict[str, dict]:
    """A run of each kind: eager, cold, warm."""
    with tempfile.TemporaryDirectory(prefix="cache_") as cache:
        found = {"eager": run(name, "cpu", options, cache), "cold": run(name, "xla", options, cache)}
        found["cold"]["figures"]["kernels"] = len(list(Path(cache).glob("*.o")))
        if options.warm:
            found["warm"] = run(name, "xla", options, cache)
    return found


def difference(values: list[float], expected: list[float]) -> float:
    """The largest relative difference; infinite where one is not a number or there are not as many."""
    a, b = (torch.tensor(numbers, dtype=torch.float64) for numbers in (values, expected))
    if a.shape != b.shape:
        return float("inf")
    apart = (a - b).abs() / b.abs().clamp(min=SMALLEST)
    return apart.nan_to_num(nan=float("inf")).amax().item()


def summary(turns: list[dict[str, dict]]) -> dict[str, dict]:
    """The medians of each kind of run, and the largest difference from the first eager run."""
    expected = turns[0]["eager"]["values"]
    found = {}
    for kind in turns[0]:
        runs = [turn[kind] for turn in turns]
        figures = [run["figures"] for run in runs]
        found[kind] = {key: statistics.median(each[key] for each in figures) for key in figures[0]}
        found[kind]["difference"] = max(difference(run["values"], expected) for run in runs)
    return found


def measure(names: list[str], options: argparse.Namespace) -> tuple[dict[str, dict], dict[str, RunError]]:
    """The summary of each case, and why there is none."""
    turns, failures = collections.defaultdict(list), {}
    pairs = list(itertools.product(names, range(options.rounds)))
    for name, _ in track(pairs, "measuring", disable=not sys.stderr.isatty()):
        if name not in failures:
            try:
                turns[name].append(take_turn(name, options))
            except RunError as error:
                failures[name] = error
    return {name: summary(turns[name]) for name in names if name not in failures}, failures


# ---- The page ----
TIMES = ("program", "eager, s", "cold / eager", "at most", "later", "CPU")
WARM_TIMES = ("program", "warm / eager", "later", "CPU", "compiled")
PROGRAMS = ("program", "compiled", "at most", "re-planned", "found", "kernels", "compiling, s")
WORK = ("program", "fallbacks", "MB, eager", "MB", "MB, later", "difference")


def table(headings: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    """The lines of a table; a row that is too short is filled up."""
    lines = [headings, ["---"] * len(headings), *(cells + [""] * (len(headings) - len(cells)) for cells in rows)]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def ratios_of(found: dict[str, dict], kind: str) -> list[str]:
    """The times of a kind of run beside eager's: the whole, the later steps, the processor's."""
    keys = ("seconds", "later_seconds", "cpu_seconds")
    return [f"{found[kind][key] / found['eager'][key]:.2f}" for key in keys]


def times_of(name: str, found: dict[str, dict]) -> list[str]:
    """The cells of a program in the table of cold runs."""
    whole, *parts = ratios_of(found, "cold")
    return [name, f"{found['eager']['seconds']:.2f}", whole, str(CASES[name].ratio or ""), *parts]


def warm_times_of(name: str, found: dict[str, dict]) -> list[str]:
    """The cells of a program in the table of warm runs."""
    return [name, *ratios_of(found, "warm"), f"{found['warm']['UncachedCompile']:.0f}"]


def programs_of(name: str, found: dict[str, dict]) -> list[str]:
    """The cells of a program in the table of compiled programs."""
    cold = found["cold"]
    counts = (f"{cold[key]:.0f}" for key in ("ReplannedProgram", "CachedCompile", "kernels"))
    limit = str(CASES[name].compiles or "")
    return [name, f"{cold['UncachedCompile']:.0f}", limit, *counts, f"{cold['CompileTime']:.2f}"]


def work_of(name: str, found: dict[str, dict]) -> list[str]:
    """The cells of a program in the table of fallbacks, memory and differences."""
    eager, cold = found["eager"], found["cold"]
    apart = max(kind["difference"] for kind in found.values())
    numbers = (cold["fallbacks"], eager["grown_mb"], cold["grown_mb"], cold["later_grown_mb"])
    difference = f"**differs: {apart:.1e}**" if apart > TOLERANCE else f"{apart:.1e}"
    return [name, *(f"{number:.0f}" for number in numbers), difference]


def page(
    found: dict[str, dict], failures: dict[str, RunError], options: argparse.Namespace, before: float
) -> list[str]:
    """The lines of the page."""
    failed = [[name, str(error)] for name, error in failures.items()]
    lines = [
        "# What changing shapes cost",
        "",
        "For programs whose tensors have other sizes from step to step. Written by `bench/dynamic.py`.",
        "",
        "The time from the first use of the device to the last value, compiling included, beside PyTorch eager's. Each",
        "run is a process of its own; cold ones find no compiled kernels, warm ones those of the cold run before.",
        "Imports and what is made on the CPU beforehand do not count. Later: without the first steps; the list below",
        "has their number. CPU: processor time, which other work on the machine changes less than the clock's.",
        f"Threads: {options.threads}. Runs of each kind, in turns: {options.rounds}; medians.",
        "",
        f"{machine()}. {load_line(before, load())}",
        "",
        "## Cold starts",
        "",
        *table(TIMES, [times_of(*item) for item in found.items()] + failed),
        "",
    ]
    if options.warm:
        lines += ["## Warm starts", "", *table(WARM_TIMES, [warm_times_of(*item) for item in found.items()]), ""]
    lines += [
        "## What cold runs compiled",
        "",
        "Compiled, re-planned, found: programs compiled whole, made for new shapes from kernels that exist, taken from",
        "memory. Kernels: files of compiled code.",
        "",
        *table(PROGRAMS, [programs_of(*item) for item in found.items()]),
        "",
        "## Fallbacks, memory, values",
        "",
        "MB: the growth of the resident memory. Difference: the largest one between a value and eager's.",
        "",
        *table(WORK, [work_of(*item) for item in found.items()]),
        "",
        "## The programs",
        "",
    ]
    for name in [*found, *failures]:
        steps, first = steps_of(name, options), CASES[name].first
        lines.append(f"- {name}: {CASES[name].run.__doc__} Steps: {steps}, first ones: {min(first, steps - 1)}.")
    return lines


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = make_parser(__doc__)
    usual = [name for name in CASES if name not in LONG]
    parser.add_argument("--only", default=",".join(usual), help="names of programs, by commas; default: %(default)s")
    parser.add_argument("--many", action="store_true", help="5,000 shapes in one process too, which takes long")
    parser.add_argument("--warm", action="store_true", help="measure second starts too")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind; default: %(default)s")
    parser.add_argument("--threads", type=int, default=2, help="of each run; default: %(default)s")
    parser.add_argument("--steps", type=int, help="steps at most, for a quick look; default: each program's own")
    options = parser.parse_args()
    options.names = options.only.split(",") + list(LONG) * options.many
    if unknown := set(options.names) - set(CASES):
        parser.error(f"--only {','.join(sorted(unknown))}: there are {', '.join(CASES)}")
    if options.rounds < 1 or options.threads < 1:
        parser.error(f"--rounds {options.rounds} --threads {options.threads}: at least one is needed")
    if options.steps is not None and options.steps < 2:
        parser.error(f"--steps {options.steps}: at least two are needed")
    return options


def main() -> int:
    """Measures and prints the page; returns the exit status."""
    options = read_options()
    before = load()
    found, failures = measure(list(dict.fromkeys(options.names)), options)
    show(page(found, failures, options, before), options.page)
    wrong = [name for name, kinds in found.items() if max(kind["difference"] for kind in kinds.values()) > TOLERANCE]
    failed = [name for name, error in failures.items() if not isinstance(error, MissingError)]
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())
