"""Checks random programs against CPU eager: one by one for the tests, thousands from the command line.

python -m tests.fuzz.check --kinds modules,indexing --first 0 --programs 1000 --fusion both
"""

import argparse
import os
import sys
import warnings

import tqdm

import torch_xla
from tests.fuzz import play
from tests.fuzz.kinds import Kind, KINDS

os.environ.setdefault("XLA_VERIFY", "1")  # the rules of graphs and schedules are checked


def find_difference(kind: Kind, lines: list[str]) -> str | None:
    """What differs between the CPU and the device, or None."""
    expected, actual = play.run(lines, "cpu"), play.run(lines, "xla", torch_xla.sync)
    return play.find_difference(expected, actual, kind.tolerance, kind.layout)


def check(kind: Kind, seed: int) -> str | None:
    """The difference that program `seed` shows and the shortest program that shows one, or None."""
    lines = play.drop_refused(kind.generate(seed))
    if find_difference(kind, lines) is None:
        return None
    lines = play.shrink(lines, lambda some: find_difference(kind, some) is not None)
    return f"program {seed}: {find_difference(kind, lines)}\n" + "\n".join(lines)


def check_range(name: str, first: int, programs: int, fusion: bool) -> int:
    """Checks programs, prints their differences and returns how many there are."""
    torch_xla._XLAC._set_fusion(fusion)
    differences = 0
    title = f"{name}, fusion {'on' if fusion else 'off'}"
    for seed in tqdm.trange(first, first + programs, desc=title, disable=not sys.stderr.isatty()):
        if difference := check(KINDS[name], seed):
            differences += 1
            print(f"---- {title}: {difference}", flush=True)
    print(f"{title}: {programs} programs, {differences} differences", flush=True)
    return differences


def main() -> int:
    """Exit code 1 if a program differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS), help="names of kinds, by default all")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--programs", type=int, default=100, help="how many of each kind")
    parser.add_argument("--fusion", choices=["on", "off", "both"], default="both")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    modes = {"on": [True], "off": [False], "both": [True, False]}[arguments.fusion]
    names = arguments.kinds.split(",")
    found = [check_range(name, arguments.first, arguments.programs, mode) for name in names for mode in modes]
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
