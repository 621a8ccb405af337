#!/usr/bin/env python3
"""Installs the wheel of dist/ into bare environments and runs the digits and 200 tests in each: see `make test-wheel`.

Prints a table of the places (tools/wheel_places.py), and the reason of each that is left out; the exit code is 1 if
one fails.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from wheel_places import environment, interpreter, Place, places, Skipped

ROOT = Path(__file__).resolve().parent.parent
# A spread of the Python tests: each eighth is run.
FILES = """
    attention collectives compile eager_mode fallback first_calls modules nested optimizers programs random_state
    rnn scan serialization special_values storage strides threads
"""
TESTS = "-m pytest --shard 1/8 -q -p no:cacheprovider".split()
TESTS += ["-m", "not slow"] + [f"tests/python/test_{name}.py" for name in FILES.split()]
DIGITS = "examples/train_digits.py --epochs 2 --out HERE/out/curves.png".split()

UNFIT = """
import torch
assert (torch.ones(2) + 1).tolist() == [2, 2]
for use in "import torch_xla", "torch.ones(2, device='xla')":
    try:
        exec(use)
    except Exception as error:
        said = str(error)
        print(f"{use}: {type(error).__name__}: {said}")
        assert "was built for torch 1.0" in said and len(said.splitlines()) == 1
    else:
        raise SystemExit(f"{use} works without a library for torch {torch.__version__}")
"""


class Failed(Exception):
    """The wheel cannot be installed; the log says why."""


@dataclass(frozen=True)
class Bench:
    """A folder in a place, by its name on this system, and the log of what is run there."""

    place: Place
    folder: Path
    log: Path

    @property
    def inside(self) -> Path:
        """The folder by its name in the place."""
        return Path("/") / self.folder.relative_to(self.place.root)

    def run(self, *command: str, by_root: bool = False) -> bool:
        """Whether the command succeeds in the folder, that HERE stands for."""
        place = replace(self.place, unprivileged=self.place.unprivileged and not by_root)
        filled = [part.replace("HERE", str(self.inside)) for part in command]
        entered = place.command("sh", "-c", 'cd "$0" && exec "$@"', str(self.inside), *filled)
        with self.log.open("a") as log:
            print("$", *filled, file=log, flush=True)
            home = environment(str(self.inside / "home"))
            return subprocess.run(entered, stdout=log, stderr=log, env=home).returncode == 0

    def python(self, *arguments: str, by_root: bool = False) -> bool:
        return self.run("HERE/env/bin/python", *arguments, by_root=by_root)


@contextmanager
def bench(place: Place, log: Path) -> Iterator[Bench]:
    """A bench with the programs that are run there."""
    folder = Path(tempfile.mkdtemp(dir=place.root / "tmp", prefix="wheel"))
    try:
        folder.chmod(0o755)
        for name in ("tests", "examples"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "cpp*"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        for name, mode in [("packages", 0o755), ("home", 0o555), ("out", 0o777)]:
            (folder / name).mkdir()
            (folder / name).chmod(mode)
        yield Bench(place, folder, log)
    finally:
        shutil.rmtree(folder)


def install(bench: Bench, wheel: Path) -> None:
    """Makes an environment that sees the place's packages, and installs the wheel there as pip does for anybody."""
    place, folder = bench.place, bench.folder
    if not bench.run(place.python, "-m", "venv", "HERE/env", by_root=True):
        raise Failed(f"makes no environment: {bench.log}")
    (site,) = (folder / "env/lib").glob("python3*/site-packages")
    for package in (place.root / place.site.lstrip("/")).iterdir():
        # Not the link to a source tree that a developer's environment has.
        if not package.name.startswith(("torch_xla", "pip")) and package.suffix != ".pth":
            (folder / "packages" / package.name).symlink_to(Path(place.site, package.name))
    (site / "packages.pth").write_text(f"{bench.inside}/packages\n")
    shutil.copy(wheel, folder)
    if not bench.python("-m", "pip", "install", "-q", "--no-deps", f"HERE/{wheel.name}", by_root=True):
        raise Failed(f"does not install: {bench.log}")
    if place.numpy and not bench.python("-m", "pip", "install", "-q", f"numpy=={place.numpy}", by_root=True):
        raise Skipped(f"numpy {place.numpy} cannot be fetched")
    if place.unfit:
        release = ".".join(place.describe()[0].split(".")[:2])
        (site / "torch_xla/lib" / f"torch{release}").rename(site / "torch_xla/lib/torch1.0")


def results(place: Place, wheel: Path, log: Path) -> list[str]:
    """What became of the digits and of the tests."""
    with bench(place, log) as at:
        install(at, wheel)
        if place.unfit:
            return ["-", "one sentence" if at.python("-c", UNFIT) else f"FAILED: {log}"]
        digits = at.python(*DIGITS)
        passed = at.python(*TESTS)
        summary = log.read_text().strip().splitlines()[-1].strip("= ")
        return ["passed" if digits else "FAILED", summary if passed else f"FAILED: {summary}"]


def table(arguments: argparse.Namespace, wheel: Path, logs: Path, skipped: list[str]) -> Iterator[list[str]]:
    """A row for each place."""
    tried = places([*map(interpreter, arguments.releases)], arguments.roots, ROOT / "build" / "roots", skipped)
    for number, place in enumerate(tried):
        log = logs / f"{number}.log"
        try:
            described = place.describe()
            print(f"== wheel in: {', '.join(filter(None, described))} ({log.relative_to(ROOT)})", flush=True)
            row = [*described, *results(place, wheel, log)]
        except Skipped as reason:
            skipped.append(str(reason))
            continue
        except Failed as problem:
            row = [*described, "FAILED", str(problem)]
        print(f"   digits: {row[-2]}, tests: {row[-1]}", flush=True)
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    help_releases = (
        "interpreters with torch and the tests' packages, or releases of `make test-releases`; else this one"
    )
    parser.add_argument("--releases", nargs="+", default=[sys.executable], metavar="RELEASE", help=help_releases)
    help_roots = "unpacked systems, beside the Debian that is made here"
    parser.add_argument("--roots", nargs="+", default=[], metavar="FOLDER", help=help_roots)
    arguments = parser.parse_args()
    wheels = sorted((ROOT / "dist").glob("torch_xla-*-py3-none-*.whl"), key=lambda wheel: wheel.stat().st_mtime)
    if not wheels:
        sys.exit("test_wheel: there is no wheel in dist/: `make wheel` makes one")
    logs = ROOT / "build" / "test_wheel"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    skipped = []
    rows = list(table(arguments, wheels[-1], logs, skipped))
    print(f"\n{wheels[-1].name}: {wheels[-1].stat().st_size / 1e6:.1f} MB\n")
    shown = [["torch", "Python", "system", "numpy", "special", "digits", "tests"], *rows]
    widths = [max(map(len, column)) for column in zip(*shown)]
    for row in shown:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    for reason in skipped:
        print(f"skipped: {reason}")
    sys.exit(any("FAILED" in cell for row in rows for cell in row))


if __name__ == "__main__":
    main()
