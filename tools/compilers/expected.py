"""Which programs a target's compiler refuses, and why: refusals.toml, and what a run finds beside it."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import tomllib

from .pool import Outcome

TABLE = Path(__file__).parent / "refusals.toml"


@dataclasses.dataclass(frozen=True)
class Refusal:
    """An entry of the table."""

    targets: tuple[str, ...]
    programs: tuple[str, ...]  # names of programs; * stands for any text
    error: str  # a part of the compiler's text
    reason: str

    def is_for(self, target: str, program: str) -> bool:
        """Whether the entry tells of that program."""
        return target in self.targets and any(
            re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), program) for pattern in self.programs
        )


def read(path: Path = TABLE) -> list[Refusal]:
    """The table's entries."""
    with path.open("rb") as file:
        entries = tomllib.load(file).get("refusal", [])
    return [Refusal(tuple(e["targets"]), tuple(e["programs"]), e["error"], e["reason"]) for e in entries]


def find(table: list[Refusal], target: str, program: str) -> Refusal | None:
    """The first entry for that program."""
    return next((entry for entry in table if entry.is_for(target, program)), None)


def problems(table: list[Refusal], target: str, outcomes: dict[str, Outcome]) -> Iterator[str]:
    """What differs from the table: refusals that are not in it, and entries of programs that compile."""
    for program, outcome in outcomes.items():
        entry = find(table, target, program)
        if outcome.refusal and (entry is None or entry.error not in outcome.refusal):
            yield f"{target} refuses {program}: {one_line(outcome.refusal)}"
        elif entry and not outcome.refusal:
            yield f"{target} compiles {program}, so its entry in {TABLE.name} is stale: {entry.reason}"


def one_line(text: str, length: int = 300) -> str:
    """The text without line breaks, cut."""
    return re.sub(r"\s+", " ", text)[:length]
