"""The other replicas of a run: waits for them, which end if one is lost, and signs of life of this one.

Each process counts up a key of its own in the run's store (src/distributed/heartbeats.h), and writes a note at its end.
"""

import contextlib
import datetime
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import torch

from . import _XLAC

_IDLE_SECONDS = 3.0  # pause after which a trace counts as complete for now
_LOST_BEATS = 10  # heartbeats of others without one of the awaited replica


def timeout() -> datetime.timedelta:
    """How long a replica waits for the others: XLA_COLLECTIVE_TIMEOUT."""
    return datetime.timedelta(seconds=_XLAC._env_integer("XLA_COLLECTIVE_TIMEOUT"))


def polls() -> Iterator[None]:
    """For polling loops, with growing pauses. Ctrl-C ends them."""
    pause = 0.0005
    while True:
        yield
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def boxed(store, rank: int = 0, size: int = 1):
    """A store as the operations of torch.ops.xla take it."""
    import torch.distributed as dist

    return dist.ProcessGroup(store, rank, size).boxed()


# ---- Waits ----
class _Watch:
    """Finds the replicas that have ended or hang.

    Args:
        store: the run's.
    """

    _PERIOD = 1.0  # seconds between two looks

    def __init__(self, store):
        self._store = store
        self._before: list[int] = []
        self._next = time.monotonic() + self._PERIOD

    def lost_among(self, replicas: Sequence[int]) -> list[int]:
        """The lost ones among the replicas; none between two looks."""
        if time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + self._PERIOD
        beats = [self._store.add(f"heartbeat/{i}", 0) for i in range(self._store.add("replicas", 0))]
        self._before = self._before or beats
        silent = torch.ops.xla._find_silent(self._before, beats, _LOST_BEATS)
        if any(now - before >= _LOST_BEATS for now, before in zip(beats, self._before)):
            self._before = beats
        return [i for i in replicas if (i in silent and beats[i]) or self._store.check([f"ended/{i}"])]


def wait_for(store, keys: Sequence[str], replicas: Sequence[int], place: str, run_store=None) -> None:
    """Waits until the store has the keys, one of each replica.

    Args:
        replicas: their numbers in the run.
        place: the meeting place, for the error.
        run_store: where the run's replicas count; None if they do not.

    Raises RuntimeError that names the lost or late replicas.
    """
    end = time.monotonic() + timeout().total_seconds()
    watch = _Watch(run_store) if run_store is not None else None
    for _ in polls():
        if store.check(keys):
            return
        missing = [replica for replica, key in zip(replicas, keys) if not store.check([key])]
        lost = watch.lost_among(missing) if watch else []
        if lost and not store.check(keys):  # else it came before it ended
            text = _note_lost(run_store, lost)
            raise RuntimeError(
                f"replica {text} has ended or does not answer; replicas {missing} did not come to {place}"
            )
        if time.monotonic() > end:
            waits = _describe_waits(run_store, missing) if watch else ""
            raise RuntimeError(
                f"replicas {missing} did not come to {place} within XLA_COLLECTIVE_TIMEOUT, "
                f"which is {timeout().total_seconds():.0f} s{waits}"
            )


def _note_lost(store, lost: Sequence[int]) -> str:
    """Writes the first lost replica to the store, as the others lose this replica next."""
    if not store.check(["lost"]):
        store.set("lost", ", ".join(map(str, lost)))
    return store.get("lost").decode()


def _describe_waits(store, replicas: Sequence[int]) -> str:
    """Reads the waits that src/distributed/group.cpp has written to the store."""
    waits = {i: store.get(f"waits/{i}").decode() for i in replicas if store.check([f"waits/{i}"])}
    return "".join(f"; replica {i} waits in {text}" for i, text in waits.items() if text != "-")


# ---- Signs of life of this process ----
_ending = threading.Event()
_failing = threading.Event()
_threads: list[threading.Thread] = []
_left: list[tuple] = []  # the store of the run and this process's number


def start_heartbeat(store, rank: int, size: int) -> None:
    """Counts from now on, until the process ends and writes its note.

    Args:
        store: a separate connection to the run's store.
    """
    store.set("replicas", str(size))
    _left.append((store, rank))
    torch.ops.xla._start_heartbeat(boxed(store, rank, size), rank)


def note_failure() -> None:
    """Notes that this process ends by an exception and leaves the others."""
    _failing.set()


def is_failing() -> bool:
    """Whether this process ends by an uncaught exception."""
    return _failing.is_set() or getattr(sys, "last_type", None) is not None


def has_peers() -> bool:
    """Whether other replicas may wait for this process."""
    return bool(_threads)


def has_joined() -> bool:
    """Whether this process has met others, which watch its heartbeats."""
    return bool(_left or _threads)


def serve() -> None:
    """Starts to run the operations that other replicas wait for."""
    if not _threads:
        thread = threading.Thread(target=_run_idle_collectives, name="xla-collectives", daemon=True)
        thread.start()
        _threads.append(thread)


def end() -> None:
    """Stops the thread before the interpreter ends: a thread that returns from C++ would not survive that."""
    _ending.set()
    for thread in _threads:
        thread.join(2.0)
    # A failing process prints its error first: the others fail when they miss its heartbeats.
    for store, rank in [] if is_failing() else _left:
        with contextlib.suppress(Exception):  # the store ends with the process that keeps it
            leave(store, rank)
    torch.ops.xla._stop_heartbeat()


def leave(store, rank: int) -> None:
    """Writes to the run's store that this replica comes to no meeting any more."""
    store.set(f"ended/{rank}", "1")


def _run_idle_collectives() -> None:
    """Runs a trace that has not grown for a while, if others may wait for it.

    For example, if a replica does not read a collective's result and waits for the others elsewhere.
    """
    seen: dict[int, tuple | None] = {}
    while not _ending.wait(_IDLE_SECONDS):
        for device in range(_XLAC._xla_num_devices()):
            pending = _XLAC._xla_pending_collectives(device)
            if pending is not None and pending == seen.get(device):
                _XLAC._xla_sync_collectives(device)
            seen[device] = pending
