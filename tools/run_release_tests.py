#!/usr/bin/env python3
"""Builds for releases of PyTorch and runs the C++ and the Python tests on each; prints a table at the end.

    tools/run_release_tests.py 2.13.0 2.14.1 2.15.0=/opt/py/bin/python
    tools/run_release_tests.py 2.14.1 --shard 1/3           # a third of the Python tests alone

tools/setup_release.py makes the environments. It names the releases that cannot be had, and leaves them out.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import made_up_release
from setup_release import folder_of, ROOT, set_up

# Of a release that nobody knows, as the table of differences does not know it either.
FEW_TESTS = ["tests/python/test_releases.py", "tests/python/test_digits.py", "tests/python/test_fallback.py"]


@dataclass
class Outcome:
    """What came of one release, a text for each step."""

    version: str
    steps: dict[str, str] = field(default_factory=dict)
    is_sound: bool = True

    def add(self, step: str, code: int, text: str, seconds: float) -> None:
        """Notes a step, which failed where the code is not zero."""
        self.steps[step] = f"{text} ({seconds / 60:.0f} min)"
        self.is_sound &= code == 0


def environment_of(version: str) -> dict[str, str]:
    """Variables by which the release's Python finds this source tree as an installed package."""
    folder = folder_of(version)
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{folder / 'path'}",
        "PATH": f"{folder / 'venv/bin'}:{os.environ['PATH']}",
    }


def run(command: list, env: dict[str, str] | None = None) -> tuple[int, str, float]:
    """The exit status, the last lines of what a command printed, which is shown too, and the seconds that it took."""
    start, lines = time.monotonic(), []
    print("==", *command, flush=True)
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines = [*lines[-9:], line.rstrip()]
    return process.returncode, "\n".join(lines), time.monotonic() - start


def summary(output: str) -> str:
    """`12 passed, 3 skipped` of what pytest or GoogleTest printed last."""
    counts = re.findall(r"\d+ (?:failed|passed|skipped|errors?)\b", output.splitlines()[-1] if output else "")
    tests = re.findall(r"\[  (PASSED|FAILED)  \] (\d+) tests?", output)
    return ", ".join(counts or [f"{number} {what.lower()}" for what, number in dict(tests).items()]) or "no summary"


def build(version: str, outcome: Outcome, python_alone: bool) -> bool:
    """Builds for the release into the source tree, where each has its own folder. False where that failed."""
    folder = ROOT / "build" / f"torch-{version}"
    python = folder_of(version) / "venv/bin/python"
    options = ["-DTORCH_XLA_IN_PLACE=ON", "-DCMAKE_BUILD_TYPE=Release", f"-DPython_EXECUTABLE={python}"]
    configure = ["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, *options, "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON"]
    seconds = 0.0
    targets = ["torch_xla", "torch_xla_compiler", "_XLAC"] if python_alone else ["all", "torch_xla_tests"]
    for command in (configure, ["cmake", "--build", folder, "--target", *targets]):
        code, _, took = run(list(map(str, command)))
        seconds += took
        if code:
            break
    outcome.add("build", code, "failed" if code else "done", seconds)
    return code == 0


def test(version: str, arguments: argparse.Namespace) -> Outcome:
    """Builds and runs what the arguments ask for."""
    outcome = Outcome(version)
    python_alone = bool(arguments.shard or arguments.tests)
    if not build(version, outcome, python_alone):
        return outcome
    env = environment_of(version)
    if not python_alone:
        program = ROOT / "build" / f"torch-{version}" / "tests/cpp/torch_xla_tests"
        code, output, seconds = run([str(program), "--gtest_brief=1"], env)
        outcome.add("C++ tests", code, summary(output), seconds)
    python = str(folder_of(version) / "venv/bin/python")
    chosen = arguments.tests.split() if arguments.tests else FEW_TESTS if version == made_up_release.VERSION else []
    shard = ["--shard", arguments.shard] if arguments.shard else []
    code, output, seconds = run([python, "-m", "pytest", "-q", "-n", "2", *shard, *chosen], env)
    outcome.add("Python tests", code, summary(output), seconds)
    return outcome


def table(outcomes: list[Outcome]) -> str:
    """A line for each release."""
    lines = [f"{outcome.version:10} {', '.join(f'{k}: {v}' for k, v in outcome.steps.items())}" for outcome in outcomes]
    return "\n".join(["", "######## releases of PyTorch", *lines])


def main() -> int:
    """Exit code 1: tests failed; 77: none failed, but a release cannot be had."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("releases", nargs="+", help="a version, or VERSION=PYTHON")
    parser.add_argument("--shard", help="of N parts of the Python tests the I-th alone: I/N")
    parser.add_argument("--tests", help="these alone, as for pytest")
    arguments = parser.parse_args()
    outcomes, missing = [], False
    for release in arguments.releases:
        version, _, python = release.partition("=")
        if obstacle := set_up(version, Path(python) if python else None):
            outcomes.append(Outcome(version, {"cannot be had": obstacle}))
            missing = True
            continue
        outcomes.append(test(version, arguments))
    print(table(outcomes))
    return 1 if not all(outcome.is_sound for outcome in outcomes) else 77 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
