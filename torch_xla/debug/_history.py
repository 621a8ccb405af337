"""The device's last steps for explain(), assembled from the events and compile reasons that C++ keeps."""

import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .. import _notebooks, _XLAC

_BY_USER = ("user torch_xla.sync", "torch_xla.")
_BY_CUT = "the trace was cut at a repeat of its loop"


@dataclass
class Event:
    """One event of the step observer (`src/core/observer.h`): times in nanoseconds, lines as "train.py:12 in step"."""

    phase: str
    name: str
    detail: str
    start_ns: int
    end_ns: int
    line: str
    call: str
    device: int
    bytes: int
    nodes: int
    content: int
    run: int
    operations: int  # that the process had recorded, modulo 2^32
    inner: bool = False  # part of a fallback

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ns - self.start_ns) / 1e9

    def contains(self, other: "Event") -> bool:
        """Whether the other one happened within this one, on the same device."""
        return self.device == other.device and self.start_ns <= other.start_ns and other.end_ns <= self.end_ns

    @property
    def by_user(self) -> bool:
        """A sync that the program or its optimizer asked for."""
        return self.name.startswith(_BY_USER)

    @property
    def by_cut(self) -> bool:
        """A sync because the trace had become too long."""
        return self.name == _BY_CUT


@dataclass
class Compile:
    """One compiled program: why, and for how long. `kind` and `what` are those of `src/program/compile_reason.h`."""

    kind: str
    what: str
    operation: str
    now: str
    before: str
    line: str
    line_before: str
    line_of_operand: str
    nodes: int
    nodes_before: int
    device: int
    time_ns: int
    cause: str
    step: int = 0
    seconds: float = 0.0


@dataclass
class Step:
    """The events on one device up to a sync that the program asks for; if it asks for none, up to any sync.

    If a turn of the program's loop has several such syncs, up to the last one.
    """

    number: int
    device: int
    events: list[Event] = field(default_factory=list)
    compiles: list[Compile] = field(default_factory=list)
    ended: bool = False  # by a sync
    forgotten: bool = False  # earlier events are missing, perhaps also its beginning

    @property
    def start_ns(self) -> int:
        """When its first event began."""
        return min(event.start_ns for event in self.events)

    @property
    def end_ns(self) -> int:
        """When its last event ended, its runs included."""
        return max(event.end_ns for event in self.events)

    def of(self, phase: str) -> list[Event]:
        """Its events of the phase, without those within a fallback."""
        return [event for event in self.events if event.phase == phase and not event.inner]

    def syncs_within(self, read: Event) -> bool:
        """Whether the read had to run the recorded operations."""
        return any(read.contains(sync) and sync.line == read.line for sync in self.of("sync"))


def split_line(line: str) -> tuple[str, int]:
    """File and number of "file.py:12 in forward" or "Cell In[3], line 12 in forward"; ("", 0) if unknown."""
    place = line.rsplit(" in ", 1)[0]
    file, _, number = place.rpartition(", line " if place.startswith("Cell ") else ":")
    return (file, int(number)) if file and number.isdigit() else ("", 0)


def source_of(line: str) -> str:
    """The text of the line, without its indentation; empty if the file cannot be read."""
    file, number = split_line(line)
    return linecache.getline(_notebooks.file_of(file), number).strip() if file else ""


def find_period(signs: Sequence, longest: int) -> int | None:
    """The usual period of a sequence. None if it has none."""
    for period in range(1, longest + 1):
        pairs = list(zip(signs, signs[period:]))
        if sum(a == b for a, b in pairs) * 2 > len(pairs):
            return period
    return None


def _mark_inner(events: list[Event]) -> None:
    """Marks the parts of fallbacks, in events sorted by their start: a fallback comes before its parts."""
    last: dict[int, Event] = {}
    for event in events:
        fallback = last.get(event.device)
        event.inner = fallback is not None and fallback.contains(event)
        if event.phase == "fallback" and not event.inner:
            last[event.device] = event


def _is_end(event: Event, has_marks: bool) -> bool:
    return event.phase == "sync" and (event.by_user or not has_marks)


def _split(events: list[Event], has_marks: bool) -> Iterator[list[Event]]:
    """The events of one device by syncs; each part begins after the sync that ended the last part, and after that
    sync's wait.
    """
    part: list[Event] = []
    ended = False
    for event in events:
        if ended and event.phase not in ("wait", "compile"):
            yield part
            part, ended = [], False
        part.append(event)
        ended = ended or _is_end(event, has_marks)
    if part:
        yield part


def _split_by_turns(events: list[Event]) -> list[list[Event]]:
    """As _split(), but the syncs of a turn that has several, at one line after the other, end one part together."""
    has_marks = any(event.phase == "sync" and event.by_user for event in events)
    parts = list(_split(events, has_marks))
    lines = [next((event.line for event in part if _is_end(event, has_marks)), "") for part in parts]
    if find_period(lines, len(lines) // 2) in (None, 1):
        return parts
    turns: list[list[Event]] = []
    seen: set[str] = set()
    for part, line in zip(parts, lines):
        if not turns or line in seen:
            turns.append([])
            seen = set()
        turns[-1] += part
        seen.add(line)
    return turns


def _join_runs(steps: list[Step], runs: list[Event]) -> None:
    """Gives each run to the step whose sync has queued it."""
    step_of = {event.run: step for step in steps for event in step.events if event.phase == "sync" and event.run}
    for run in runs:
        if run.run in step_of:
            step_of[run.run].events.append(run)


def _join_compiles(steps: list[Step], compiles: list[Compile]) -> None:
    """Gives each reason to the step whose sync has compiled the program, and the times of both."""
    for step in steps:
        syncs = [event for event in step.events if event.phase == "sync"]
        for reason in compiles:
            sync = next(
                (s for s in syncs if s.device == reason.device and s.start_ns <= reason.time_ns <= s.end_ns), None
            )
            if sync is None:
                continue
            compiled = [event for event in step.events if event.phase == "compile" and sync.contains(event)]
            reason.step, reason.seconds = step.number, sum(event.seconds for event in compiled)
            step.compiles.append(reason)


def read_steps() -> list[Step]:
    """The remembered steps, for each device in order, numbered from 1."""
    events = sorted((Event(**event) for event in _XLAC._history()), key=lambda event: (event.start_ns, -event.end_ns))
    compiles = [Compile(**reason) for reason in _XLAC._compile_reasons()]
    steps = []
    for device in sorted({event.device for event in events}):
        own = [event for event in events if event.device == device and event.phase != "run"]
        runs = [event for event in events if event.device == device and event.phase == "run"]
        _mark_inner(own)
        of_device = [Step(number, device, part) for number, part in enumerate(_split_by_turns(own), 1)]
        for step in of_device:
            step.ended = any(event.phase == "sync" for event in step.events)
            step.forgotten = step.number == 1 and len(events) == _XLAC._HISTORY_EVENTS
        _join_runs(of_device, runs)
        _join_compiles(of_device, compiles)
        steps += of_device
    return steps
