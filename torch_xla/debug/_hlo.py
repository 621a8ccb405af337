"""Programs that XLA has optimized: from the bytes of a HloModuleProto to text, and their estimated cycles.

Reads the few fields that a listing needs, without protocol buffers' own library.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

_TYPES = (
    "invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 tuple opaque c64 bf16 token c128 f8e5m2 f8e4m3fn s4 u4 "
    "f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz s2 u2 f8e4m3 f8e3m4 s1 u1 f4e2m1fn f8e8m0fnu buffer"
).split()


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _fields(data: memoryview) -> dict[int, list]:
    """A message's fields by number: numbers, and memory of what has a length."""
    fields: dict[int, list] = defaultdict(list)
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            size = 8 if kind == 1 else 4
            value, at = data[at : at + size], at + size
        fields[key >> 3].append(value)
    return fields


def _text(fields: dict[int, list], number: int) -> str:
    return bytes(fields[number][-1]).decode("utf-8", "replace") if fields.get(number) else ""


def _numbers(fields: dict[int, list], number: int) -> list[int]:
    """A repeated number, packed or not; signed."""
    values: list[int] = []
    for part in fields.get(number, ()):
        if isinstance(part, int):
            values.append(part)
            continue
        at = 0
        while at < len(part):
            value, at = _varint(part, at)
            values.append(value)
    return [value - (1 << 64) if value >> 63 else value for value in values]


def _number(fields: dict[int, list], number: int) -> int:
    return next(iter(_numbers(fields, number)), 0)


def _shape(data: memoryview) -> str:
    """As XLA writes it: f32[8,16]{1,0}."""
    fields = _fields(data)
    kind = _number(fields, 2)
    name = _TYPES[kind] if kind < len(_TYPES) else f"type{kind}"
    if name == "tuple":
        return f"({', '.join(_shape(part) for part in fields.get(4, ()))})"
    text = f"{name}[{','.join(map(str, _numbers(fields, 3)))}]"
    order = _numbers(_fields(fields[5][-1]), 1) if fields.get(5) else []
    return f"{text}{{{','.join(map(str, order))}}}" if order else text


@dataclass
class Instruction:
    """One instruction: its operands and computations by their numbers."""

    number: int
    name: str
    opcode: str
    shape: str
    operands: list[int]
    calls: list[int]
    detail: str
    config: str
    line: str
    constant: int | None = None  # of type s32
    channel: int = 0  # of a collective; its parts have the same

    @property
    def cycles(self) -> int | None:
        """The compiler's estimate. None if it has none."""
        found = re.search(r'"estimated_cycles":\s*"?(-?\d+)', self.config)
        return int(found[1]) if found else None

    @property
    def trips(self) -> int | None:
        """How often a loop's body runs. None where the compiler does not say."""
        found = re.search(r'"known_trip_count":\s*\{"n":\s*"?(\d+)', self.config)
        return int(found[1]) if found else None


def _line(metadata: memoryview) -> str:
    fields = _fields(metadata)
    file, operation = _text(fields, 3), _text(fields, 2)
    return f"{file}:{_number(fields, 4)}" if file else operation


def _instruction(data: memoryview) -> Instruction:
    fields = _fields(data)
    opcode = _text(fields, 2)
    details = {
        "parameter": str(_number(fields, 9)),
        "get-tuple-element": f"index={_number(fields, 13)}",
        "custom-call": f'custom_call_target="{_text(fields, 28)}"',
        "fusion": f"kind={_text(fields, 11)}",
        "compare": f"direction={_text(fields, 63)}",
    }
    literal = _numbers(_fields(fields[8][-1]), 4) if fields.get(8) else []
    dims = _numbers(fields, 14)
    return Instruction(
        number=_number(fields, 35),
        name=_text(fields, 1),
        opcode=opcode,
        shape=_shape(fields[3][-1]) if fields.get(3) else "",
        operands=_numbers(fields, 36),
        calls=_numbers(fields, 38),
        detail=details.get(opcode, f"dimensions={{{','.join(map(str, dims))}}}" if dims else ""),
        config=_text(fields, 43),
        line=_line(fields[7][-1]) if fields.get(7) else "",
        constant=literal[0] if len(literal) == 1 else None,
        channel=_number(fields, 26),
    )


@dataclass
class Computation:
    """One computation: the entry, or one that instructions call."""

    number: int
    name: str
    root: int
    instructions: list[Instruction] = field(default_factory=list)


class Module:
    """An optimized program.

    Args:
        data: bytes of a HloModuleProto, or of a HloModuleProtoWithConfig.
        with_config: which of the two.
    """

    def __init__(self, data: bytes, with_config: bool):
        module = _fields(memoryview(data))
        if with_config:
            module = _fields(module[1][-1])
        self.name = _text(module, 1)
        self.entry = _number(module, 6)
        self.computations: dict[int, Computation] = {}
        for part in module.get(3, ()):
            fields = _fields(part)
            computation = Computation(_number(fields, 5), _text(fields, 1), _number(fields, 6))
            computation.instructions = [_instruction(each) for each in fields.get(2, ())]
            self.computations[computation.number] = computation

    def cycles(self) -> int | None:
        """The sum of the estimates, a loop's body as often as it runs. None if the compiler estimates nothing."""
        return self._cycles_of(self.entry)

    def _cycles_of(self, number: int) -> int | None:
        total = None
        for each in self.computations[number].instructions:
            cycles = each.cycles
            if cycles is None and each.opcode in ("while", "call", "conditional"):
                inner = [found for call in each.calls if (found := self._cycles_of(call)) is not None]
                chosen = [max(inner, default=None)] if each.opcode == "conditional" else inner
                known = [found for found in chosen if found is not None]
                cycles = self.trips(each) * sum(known) if known else None
            if cycles is not None and cycles > 0:
                total = (total or 0) + cycles
        return total

    def trips(self, loop: Instruction) -> int:
        """How often a loop's body runs, as its condition says of a counter from 0; 1 where that is not known."""
        if loop.trips is not None:
            return loop.trips
        for called in map(self.computations.get, loop.calls):
            parts = {each.number: each for each in called.instructions}
            test = parts.get(called.root)
            if test and test.opcode == "compare" and test.detail == "direction=LT":
                return parts[test.operands[1]].constant or 1
        return 1

    def text(self) -> str:
        """Its computations, the entry last: an instruction a line, with its estimated cycles and the user's line."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"HloModule {self.name}"
        last = [self.computations[self.entry]]
        for computation in [each for each in self.computations.values() if each is not last[0]] + last:
            names = {each.number: each.name for each in computation.instructions}
            yield ""
            yield f"{'ENTRY ' if computation is last[0] else ''}%{computation.name} {{"
            for each in computation.instructions:
                yield self._instruction_text(each, names, each.number == computation.root)
            yield "}"

    def _instruction_text(self, each: Instruction, names: dict[int, str], is_root: bool) -> str:
        operands = ", ".join(f"%{names.get(number, number)}" for number in each.operands)
        inside = each.detail if each.opcode == "parameter" else operands
        text = f"  {'ROOT ' if is_root else ''}%{each.name} = {each.shape} {each.opcode}({inside})"
        if each.detail and each.opcode != "parameter":
            text += f", {each.detail}"
        if each.calls:
            text += f", calls={', '.join(f'%{self.computations[call].name}' for call in each.calls)}"
        notes = [f"{each.cycles} cycles"] if each.cycles is not None else []
        notes += [each.line] if each.line else []
        return f"{text}  // {', '.join(notes)}" if notes else text
