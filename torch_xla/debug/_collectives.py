"""Collectives of a program that XLA has optimized: how many of each kind, and their bytes."""

import re
from dataclasses import dataclass

from ._hlo import Computation, Instruction, Module

_KINDS = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)
_LATER_PARTS = ("async-update", "async-done")  # they name the computation that async-start runs
_BITS = {"pred": 8, "token": 0, "opaque": 0}


@dataclass
class Collective:
    """The collectives of one kind in a run of a program, loops as often as they turn.

    Attributes:
        kind: XLA's name: "all-reduce".
        count: their number.
        bytes: on one device, of their operands or of their results, whichever are more.
    """

    kind: str
    count: int
    bytes: int


def _array_bytes(kind: str, sizes: str) -> int:
    digits = re.search(r"\d+", kind)
    bits = _BITS[kind] if kind in _BITS else int(digits[0]) if digits else 0
    count = 1
    for size in filter(None, sizes.split(",")):
        count *= int(size)
    return -(-count * bits // 8)


def _shape_bytes(shape: str) -> int:
    """Of all arrays in XLA's text of a shape: (f32[8,16]{1,0}, u32[])."""
    return sum(_array_bytes(*found) for found in re.findall(r"(\w+)\[([\d,]*)\]", shape))


class _Count:
    """Counts the collectives of a module by kind."""

    def __init__(self, module: Module):
        self._module = module
        self._channels: set[int] = set()
        self.found: dict[str, Collective] = {}

    def add(self, computation: Computation, times: int) -> None:
        """Those of a computation that runs so many times."""
        parts = {each.number: each for each in computation.instructions}
        for each in computation.instructions:
            if (kind := self._kind(each, computation)) and self._is_new(each):
                self._add(kind, each, parts, times)
            turns = self._module.trips(each) if each.opcode == "while" else 1
            for number in () if each.opcode in _LATER_PARTS else each.calls:
                self.add(self._module.computations[number], times * turns)

    def _is_new(self, each: Instruction) -> bool:
        """False for a later part of a collective that runs beside other work: a TPU's program repeats it in each."""
        if each.channel in self._channels:
            return False
        self._channels |= {each.channel} - {0}
        return True

    def _kind(self, each: Instruction, computation: Computation) -> str:
        """The kind, empty for other instructions and for the second half of a collective in two."""
        kind = each.opcode.removesuffix("-start")
        if kind not in _KINDS:
            return ""
        # A TPU's program has this one as a sum whose result is cut.
        return "reduce-scatter" if kind == "all-reduce" and "all-reduce-scatter" in computation.name else kind

    def _add(self, kind: str, each: Instruction, parts: dict[int, Instruction], times: int) -> None:
        done = (user for user in parts.values() if user.opcode == f"{kind}-done" and user.operands == [each.number])
        result = next(done, each).shape
        operands = sum(_shape_bytes(parts[number].shape) for number in each.operands)
        entry = self.found.setdefault(kind, Collective(kind, 0, 0))
        entry.count += times
        entry.bytes += times * max(operands, _shape_bytes(result))


def count_collectives(module: Module) -> list[Collective]:
    """The module's collectives, by kind in alphabetical order."""
    count = _Count(module)
    count.add(module.computations[module.entry], 1)
    return [count.found[kind] for kind in sorted(count.found)]
