"""Checks random programs against CPU eager: one by one for the tests, thousands from the command line.

python -m tests.fuzz.check --kinds modules,indexing --first 0 --programs 1000 --fusion both

With --disk each program is played twice on the device: the second time what it compiled comes from disk, and values are
equal to the last bit. With --syncs what is recorded runs behind random lines, and free memory is filled.
"""

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Callable

import torch
import tqdm

import torch_xla
import torch_xla.debug.metrics as met
from tests.fuzz import play
from tests.fuzz.kinds import Kind, KINDS

os.environ.setdefault("XLA_VERIFY", "1")  # the rules of graphs and schedules are checked


def find_difference(kind: Kind, lines: list[str]) -> str | None:
    """What differs between the CPU and the device, or None."""
    return find_sure_difference(kind, lines, play.run(lines, "cpu"), play.run(lines, "xla", torch_xla.sync))


def find_sure_difference(kind: Kind, lines: list[str], expected: dict, actual: dict) -> str | None:
    """What differs between the two beyond what rounding may make of it, or None."""
    difference = play.find_difference(expected, actual, kind.tolerance, kind.layout)
    if difference is None:
        return None
    others = [play.run(lines, "cpu", change=change) for change in (play.nudge, play.widen)]
    sure = [play.drop_doubtful(results, expected, others, kind.tolerance) for results in (expected, actual)]
    return play.find_difference(*sure, kind.tolerance, kind.layout)


def run_and_fill() -> None:
    """Runs what is recorded, and fills memory that it leaves free, in some of the sizes that programs use."""
    torch_xla.sync()
    filled = [torch.full((size,), float("nan"), device="xla") for size in (1, 4, 8, 16, 24, 36, 48, 64)]
    torch_xla.sync()
    del filled


def find_difference_with_syncs(kind: Kind, lines: list[str]) -> str | None:
    """As find_difference, where the device also runs what is recorded behind some lines."""
    expected, actual = play.run(lines, "cpu"), play.run(lines, "xla", torch_xla.sync, after=run_and_fill)
    return find_sure_difference(kind, lines, expected, actual)


def find_difference_from_disk(_kind: Kind, lines: list[str]) -> str | None:
    """What differs between programs as they are compiled and as they come from disk, or None. See keep_on_disk()."""
    compiled = {name: list_bits(*result) for name, result in play.run(lines, "xla", torch_xla.sync).items()}
    forget_last_program()
    restored = {name: list_bits(*result) for name, result in play.run(lines, "xla", torch_xla.sync).items()}
    differing = [name for name in compiled.keys() | restored.keys() if compiled.get(name) != restored.get(name)]
    return f"{differing} differ" if differing else None


def list_bits(value: torch.Tensor | type, *facts: object) -> tuple:
    """A tensor's type and memory to the last bit; the class of an error."""
    if not isinstance(value, torch.Tensor):
        return (value,)
    flat = value.cpu().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
    return value.dtype, value.shape, value.stride(), flat.tolist(), facts


def keep_on_disk(directory: str) -> None:
    """Before the device is used: keeps programs on disk, and in memory the last one only."""
    os.environ["XLA_PERSISTENT_CACHE_PATH"] = directory
    os.environ["XLA_COMPILATION_CACHE_SIZE"] = "1"


def forget_last_program() -> None:
    (torch.zeros(1).to("xla") + 1).item()


def check(kind: Kind, seed: int, find: Callable[[Kind, list[str]], str | None] = find_difference) -> str | None:
    """The difference that program `seed` shows and the shortest program that shows one, or None."""
    lines = play.drop_refused(kind.generate(seed))
    if find(kind, lines) is None:
        return None
    lines = play.shrink(lines, lambda some: find(kind, some) is not None)
    return f"program {seed}: {find(kind, lines)}\n" + "\n".join(lines)


def check_range(name: str, first: int, programs: int, fusion: bool, find: Callable = find_difference) -> int:
    """Checks programs, prints their differences and returns how many there are."""
    torch_xla._XLAC._set_fusion(fusion)
    differences = 0
    title = f"{name}, fusion {'on' if fusion else 'off'}"
    for seed in tqdm.trange(first, first + programs, desc=title, disable=not sys.stderr.isatty()):
        if difference := check(KINDS[name], seed, find):
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
    parser.add_argument("--deterministic", action="store_true", help="with torch.use_deterministic_algorithms")
    parser.add_argument("--syncs", action="store_true", help="run what is recorded behind random lines")
    parser.add_argument("--disk", action="store_true", help="compare programs with themselves from disk")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.use_deterministic_algorithms(arguments.deterministic)
    os.environ.setdefault("CPU_NUM_DEVICES", str(max(KINDS[name].devices for name in arguments.kinds.split(","))))
    if not arguments.disk:
        return check_all(arguments, find_difference_with_syncs if arguments.syncs else find_difference)
    with tempfile.TemporaryDirectory() as directory:
        keep_on_disk(directory)
        code = check_all(arguments, find_difference_from_disk)
    print(*(f"{name}: {met.counter_value(name) or 0}" for name in ("UncachedCompile", "PersistentCacheHit")), sep=", ")
    return code


def check_all(arguments: argparse.Namespace, find: Callable) -> int:
    """Exit code of the command line."""
    modes = {"on": [True], "off": [False], "both": [True, False]}[arguments.fusion]
    names = arguments.kinds.split(",")
    found = [check_range(name, arguments.first, arguments.programs, mode, find) for name in names for mode in modes]
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
