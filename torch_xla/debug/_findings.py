"""The mistakes that explain() knows: each rule finds its own in the steps of one device."""

import itertools
import sysconfig
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from ._history import Event, find_period, split_line, Step
from ._mistakes import Finding, OFTEN
from ._recompiles import find_compiles, has_shape_from_data

# The least share of steps with an event, between its first and last step, for an event in the loop.
_SHARE = 0.5


def _is_frequent(numbers: Iterable[int]) -> bool:
    """Whether the steps of these numbers are several, and many of those between the first and the last."""
    seen = sorted(set(numbers))
    return len(seen) >= OFTEN and len(seen) >= _SHARE * (seen[-1] - seen[0] + 1)


def _is_users(line: str) -> bool:
    """Whether the line is in the user's own code."""
    file, _ = split_line(line)
    return bool(file) and "-packages/" not in file and not file.startswith(sysconfig.get_path("stdlib"))


def _by_line(steps: list[Step], phase: str, key: Callable[[Event], object]) -> dict[tuple, list[tuple[Step, Event]]]:
    """The events of a phase by line and key."""
    groups: dict[tuple, list[tuple[Step, Event]]] = defaultdict(list)
    for step in steps:
        for event in step.of(phase):
            groups[event.line, key(event)].append((step, event))
    return groups


def _finding(cause: str, what: str, seen: list[tuple[Step, Event]], line: str = "", other_line: str = "") -> Finding:
    """A finding about events."""
    return Finding(
        cause,
        what,
        line or seen[0][1].line,
        other_line,
        count=len(seen),
        seconds=sum(event.seconds for _, event in seen),
        steps=sorted({step.number for step, _ in seen}),
        devices=[seen[0][0].device],
    )


def _how_read(event: Event) -> str:
    """The cause of a read."""
    if event.call.endswith(("__repr__", "__format__")):
        return "print in the loop"
    causes = {
        "bool": "branch on a tensor",
        "item": "item in the loop",
        "copy": "copy in the loop",
    }
    return causes.get(event.name, "read in the loop")


_READ_TEXTS = {
    "print in the loop": "a tensor is printed",
    "branch on a tensor": "Python branches on a tensor's value (if, while, assert, and, or, not)",
    "item in the loop": "a value is read (.item(), .tolist(), float() or int() of a tensor)",
    "copy in the loop": "a tensor is copied to the CPU",
    "read in the loop": "a tensor is read",
}


def _upload_after(step: Step, read: Event) -> Event | None:
    """The upload in the step after a read that has cut it."""
    return next((event for event in step.of("upload") if event.start_ns > read.end_ns and _is_users(event.line)), None)


def find_reads(steps: list[Step]) -> Iterator[Finding]:
    """Reads in the loop. A read that cuts the step, with a value that goes back to the device, is "mixed devices"."""
    has_marks = any(event.by_user for step in steps for event in step.of("sync"))
    groups = _by_line(steps, "download", _how_read)
    crossings: list[tuple[Step, Event]] = []
    for (_, cause), seen in groups.items():
        cuts = [(step, event) for step, event in seen if step.syncs_within(event)]
        in_inner_loop = len(cuts) >= OFTEN * len({step.number for step, _ in seen})
        if not _is_frequent(step.number for step, _ in seen) and not in_inner_loop:
            continue
        if cause == "copy in the loop" and not has_marks and len(groups) == 1:
            continue  # the result of each turn; only this read runs the turn
        if cause == "copy in the loop" and has_marks and len([1 for cut in cuts if _upload_after(*cut)]) >= OFTEN:
            crossings += seen
            continue
        effect = (
            "what is recorded so far is cut off, runs alone and is waited for"
            if len(cuts) * 2 > len(seen)
            else "the program waits for the step that runs, instead of recording the next one"
        )
        yield _finding(cause, f"{_READ_TEXTS[cause]}: {effect}", seen)
    if crossings:
        back = _upload_after(*crossings[0])
        what = "a value goes to the CPU within the step, and from there to the device again"
        yield _finding("mixed devices", what, crossings, other_line=back.line if back else "")


def find_fallbacks(steps: list[Step]) -> Iterator[Finding]:
    """Operations that run on the CPU, first those with a data-dependent shape."""
    for (_, name), seen in _by_line(steps, "fallback", lambda event: event.name).items():
        if not _is_frequent(step.number for step, _ in seen):
            continue
        if has_shape_from_data(name):
            cut = {step.number: step for step, _ in seen}.values()
            later = sum(reason.kind == "shape" for step in cut for reason in step.compiles)
            what = f"{name} gives a result whose shape is in the data: it runs on the CPU, and the step is cut there"
            what += f"; compiled for its shapes: {later}" if later else ""
            yield _finding("shape from data", what, seen)
        else:
            yield _finding("fallback", f"{name} runs on the CPU: {seen[0][1].detail}", seen)


def find_replicated(steps: list[Step]) -> Iterator[Finding]:
    """Operations over processes that each process computes whole."""
    for (_, name), seen in _by_line(steps, "replicated", lambda event: event.name).items():
        if _is_frequent(step.number for step, _ in seen):
            what = f"{name} cannot be spread over the processes: its operands are gathered, and each process computes "
            yield _finding("replicated", f"{what}all of it ({seen[0][1].detail})", seen)


def find_uploads(steps: list[Step]) -> Iterator[Finding]:
    """The same bytes moved from one line again and again."""
    for (line, _), seen in _by_line(steps, "upload", lambda event: None).items():
        numbers = {step.number for step, _ in seen}
        contents = defaultdict(set)
        for step, event in seen:
            contents[event.content].add(step.number)
        for content, where in contents.items():
            if content and _is_users(line) and where == numbers and _is_frequent(where):
                same = [(step, event) for step, event in seen if event.content == content]
                what = f"the same {same[0][1].bytes} bytes are moved from the CPU to the device"
                yield _finding("same values moved", what, same)


def find_optimizers(steps: list[Step]) -> Iterator[Finding]:
    """Optimizers that are made again for each step."""
    for (_, name), seen in _by_line(steps, "optimizer", lambda event: event.name).items():
        new = [(step, event) for step, event in seen if event.detail == "replaces"]
        if len(new) >= OFTEN and all(event.detail == "replaces" for _, event in seen[-OFTEN:]):
            what = f"each step is made by another {name}, over the same parameters"
            yield _finding("new optimizer", what, new)


def find_forgotten_syncs(steps: list[Step]) -> Iterator[Finding]:
    """Traces of several turns of the loop."""
    syncs = [(step, event) for step in steps for event in step.of("sync")]
    cuts = [(step, event) for step, event in syncs if event.by_cut]
    traces = [(step, event) for step in steps for event in step.of("trace")]
    if len(cuts) > sum(event.by_user for _, event in syncs):
        nodes = max(event.nodes for _, event in traces)
        what = f"nothing syncs: the trace has grown to {nodes} operations, until it was cut at a repeat of the loop"
        yield _finding("forgotten sync", what, cuts)
        return
    for step, trace in traces:
        for line, turns in _turns_within(step, trace):
            what = f"{turns} are recorded in one trace of {trace.nodes} operations; nothing syncs"
            yield _finding("forgotten sync", what, [(step, trace)], line=line)


def _before_end(step: Step, trace: Event, phase: str) -> list[Event]:
    """The step's events from the last sync before the trace to its end, also before its first operation."""
    begin = max((sync.end_ns for sync in step.of("sync") if sync.end_ns <= trace.start_ns), default=0)
    return [event for event in step.of(phase) if begin <= event.start_ns and event.end_ns <= trace.end_ns]


def _count_turns(moves: list[Event]) -> int | None:
    """The number of turns of a loop that made these moves of one line.

    A turn may make several; moves without an operation between belong together. The operations between two moves, and
    if needed the moved bytes, show after how many moves a turn begins again. None if they do not.
    """
    groups: list[list[Event]] = []
    for move in moves:
        if groups and groups[-1][-1].operations == move.operations:
            groups[-1].append(move)
        else:
            groups.append([move])
    starts = [group[0].operations for group in groups]
    gaps = [(after - before) % 2**32 for before, after in itertools.pairwise(starts)]
    longest = len(groups) // 2
    period = find_period(gaps, longest) if len(groups) > 2 else 1
    if period is None:
        return None
    sizes = [sum(move.bytes for move in group) for group in groups]
    for several in range(period, longest + 1, period):
        pairs = list(zip(sizes, sizes[several:]))
        pairs = pairs[:-several] or pairs  # the last batch may be smaller
        if pairs and sum(a == b for a, b in pairs) > 0.9 * len(pairs):
            period = several
            break
    return -(-len(groups) // period)


def _turns_within(step: Step, trace: Event) -> Iterator[tuple[str, str]]:
    """Lines that the trace has passed repeatedly, and how often, in words.

    Counts steps of one optimizer, or without one batches.
    """
    at_least = "at least " if step.forgotten else ""
    batches: dict[str, list[Event]] = defaultdict(list)
    for event in _before_end(step, trace, "upload"):
        if _is_users(event.line):
            batches[event.line].append(event)
    loops = {line: _count_turns(moves) for line, moves in batches.items()}
    optimizers: dict[tuple, list[Event]] = defaultdict(list)
    for event in step.of("optimizer"):
        if trace.contains(event):
            optimizers[event.line, event.content].append(event)
    for (line, _), seen in optimizers.items():
        counts = {count for count in loops.values() if count and count > 1} or {len(seen)}
        turns = len(seen) if len(seen) in counts else max(counts)
        steps = f", with {len(seen)} steps of the optimizer," if turns != len(seen) else ""
        if len(seen) > 1:
            yield line, f"{at_least}{turns} turns of the loop{steps}"
    if optimizers:
        return
    for line, turns in loops.items():
        if len({move.content for move in batches[line]}) > OFTEN and (turns is None or turns > OFTEN + 1):
            yield line, f"{at_least}{turns or 'several'} turns of the loop"


_RULES = (
    find_forgotten_syncs,
    find_compiles,
    find_fallbacks,
    find_replicated,
    find_reads,
    find_uploads,
    find_optimizers,
)


def find_all(steps: list[Step]) -> list[Finding]:
    """All mistakes, the most expensive first; the same mistake of several devices or traces counts once."""
    found: dict[tuple, Finding] = {}
    for device in sorted({step.device for step in steps}):
        for rule in _RULES:
            for finding in rule([step for step in steps if step.device == device]):
                key = finding.cause, finding.line
                if key not in found:
                    found[key] = finding
                    continue
                same = found[key]
                same.count += finding.count
                same.seconds += finding.seconds
                same.steps = sorted({*same.steps, *finding.steps})
                same.devices = sorted({*same.devices, *finding.devices})
    return sorted(found.values(), key=lambda finding: -finding.seconds)
