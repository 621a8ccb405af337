"""The rules of explain() for programs that are compiled again and again."""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterator

import torch

from ._history import Compile, Step
from ._mistakes import Finding, OFTEN

# Programs compiled less often than once in this many steps belong to another model or phase.
_STEPS_PER_COMPILE = 50
# The most steps that a loader is ahead.
_AHEAD = 8


def has_shape_from_data(name: str) -> bool:
    """Whether the size of the ATen operation's result depends on values, by its tag in PyTorch."""
    space, _, base = name.partition("::")
    packet = getattr(getattr(torch.ops, space, None), base.split(".")[0], None)
    overloads = packet.overloads() if packet is not None else []
    return any(torch.Tag.dynamic_output_shape in getattr(packet, each).tags for each in overloads)


def _dims(text: str) -> list[int]:
    """Of a type as "f32[3,4]"."""
    inside = re.fullmatch(r"\w+\[([\d,]*)\].*", text)
    return [int(n) for n in inside[1].split(",")] if inside and inside[1] else []


def _nbytes(text: str) -> int:
    """Of a type as "f32[3,4]"; a bool has one byte."""
    bits = re.match(r"[a-z]+(\d*)", text)[1]
    return math.prod(_dims(text)) * max(int(bits or 8) // 8, 1)


def _find_loader_line(steps: list[Step], reason: Compile) -> str:
    """The line that moved both the present and the earlier tensor, within few steps."""
    near = [step for step in steps if reason.step - _AHEAD <= step.number <= reason.step]
    uploads = [event for step in near for event in step.of("upload")]
    now, before = (
        {event.line for event in uploads if event.bytes == _nbytes(text)} for text in (reason.now, reason.before)
    )
    return min(now & before, default="")


def _size(reason: Compile) -> int:
    """The size of the difference: elements of a tensor, operands, else operations of the program."""
    return (
        math.prod(_dims(reason.now))
        if reason.kind == "shape"
        else int(reason.now)
        if reason.now.isdigit()
        else reason.nodes
    )


def _is_growing(seen: list[Compile]) -> bool:
    """Whether each of several programs is larger than the one before."""
    kinds = ("shape", "operands", "operation")
    return seen[0].kind in kinds and all(_size(a) < _size(b) for a, b in itertools.pairwise(seen))


def _is_other_batch(steps: list[Step], reason: Compile) -> bool:
    """Whether an input that the loop moves to the device has another number of rows, and nothing else has changed."""
    same_rows = _dims(reason.now)[1:] == _dims(reason.before)[1:] and "an input" in reason.what
    return (
        reason.kind == "shape"
        and reason.nodes == reason.nodes_before
        and same_rows
        and bool(_find_loader_line(steps, reason))
    )


def _cause_of(steps: list[Step], seen: list[Compile]) -> str:
    """The cause for programs that one line compiled for one kind of reason; empty if they are no mistake."""
    last = seen[-1]
    if _is_other_batch(steps, last):
        return "changing batch"
    if len(seen) < OFTEN or last.step - seen[0].step > _STEPS_PER_COMPILE * (len(seen) - 1):
        return ""
    if _is_growing(seen):
        return "growing list"
    rest = {
        "shape": "changing shape",
        "constant": "changing dropout" if "dropout" in last.operation else "changing constant",
        "operation": "changing operations",
        "alive values": "other values kept",
        "dtype": "changing inputs",
        "memory order": "changing inputs",
        "operands": "changing inputs",
    }
    return rest.get(last.kind, "")


def find_compiles(steps: list[Step]) -> Iterator[Finding]:
    """Lines that compile again and again, unless the rules for shapes from data or Python branches report them."""
    groups: dict[tuple, list[Compile]] = defaultdict(list)
    for step in steps:
        has_data_shapes = any(has_shape_from_data(event.name) for event in step.of("fallback"))
        branches = any(event.name == "bool" for event in step.of("download"))
        for reason in step.compiles:
            if not (has_data_shapes and reason.kind == "shape") and not (branches and reason.kind == "operation"):
                groups[reason.kind, reason.line, "" if reason.kind == "operation" else reason.operation].append(reason)
    for seen in groups.values():
        if cause := _cause_of(steps, seen):
            line, other_line = _lines_of(steps, seen[-1], cause)
            yield Finding(
                cause,
                "the step was compiled again: " + seen[-1].what,
                line,
                other_line,
                count=len(seen),
                seconds=sum(reason.seconds for reason in seen),
                steps=[reason.step for reason in seen],
                devices=[seen[-1].device],
            )


def _lines_of(steps: list[Step], reason: Compile, cause: str) -> tuple[str, str]:
    """The line of the finding, and a second line if that helps."""
    if cause == "changing batch":
        return reason.line, _find_loader_line(steps, reason)
    if "_backward" in reason.operation and reason.line_of_operand:
        return reason.line_of_operand, reason.line
    return reason.line, reason.line_before
