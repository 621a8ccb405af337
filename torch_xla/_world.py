"""The replicas of a run: which one this thread is, and how it meets the others.

A run is one replica unless its processes were started by `xmp.spawn` or torchrun, which both say in the environment
what each process is, or its threads by `DataParallel`, where each device is a replica.
"""

import collections
import contextlib
import datetime
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from . import _XLAC

_BEAT_SECONDS = 1.0  # src/distributed/collectives.cpp looks whether others still count
_IDLE_SECONDS = 3.0  # after which a trace is taken to be complete, for now
_NAMING = datetime.timedelta(seconds=4)  # of a timeout, at its end: finding out who is lost
_PREFIX = "torch_xla"
_groups: set[str] = set()  # names of those that this process is in


def timeout() -> datetime.timedelta:
    """How long a replica waits for the others: XLA_COLLECTIVE_TIMEOUT."""
    return datetime.timedelta(seconds=_XLAC._env_integer("XLA_COLLECTIVE_TIMEOUT"))


def run_collectives() -> None:
    """Runs what is recorded if others may wait for it: to be called before this replica waits for them elsewhere."""
    _XLAC._xla_sync_collectives(_XLAC._xla_current_device())


def make_group(name: str, store, rank: int, size: int, run_store=None) -> str:
    """Makes a group that the operations torch.ops.xla know by its name, which is returned. Meets its other members.

    Args:
        store: for the meeting; of this group alone.
        run_store: where the run's replicas count their heartbeats; by default nobody does.
    """
    import torch.distributed as dist

    run_collectives()
    group = dist.ProcessGroup(store if run_store is None else run_store, rank, size)
    gloo = dist.ProcessGroupGloo(store, rank, size, timeout() - min(_NAMING, timeout() / 2))
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
    torch.ops.xla._add_group(name, group.boxed())
    _groups.add(name)
    return name


def remove_group(name: str) -> None:
    """Takes leave of a group: collectives in which others wait for this replica fail."""
    torch.ops.xla._remove_group(name)
    _groups.discard(name)


def _polls() -> Iterator[None]:
    """For loops that ask again and again, with pauses that grow."""
    pause = 0.0005
    while True:
        yield
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def finish_sends(name: str) -> None:
    """Waits until what the group's replica has sent is received. Polls, so that Ctrl-C is heard.

    Raises RuntimeError if a send has failed.
    """
    for _ in _polls():
        if not torch.ops.xla._is_sending(name):
            return


class Replica:
    """One replica of a run. Any thread.

    Args:
        rank, size: its number, and how many there are.
        local_rank, local_size: the same on this machine.
        connect: gives a new connection to the run's store; None where there is nobody to meet.
        scope: begins the names of its groups.
    """

    def __init__(
        self, rank: int, size: int, local_rank: int, local_size: int, connect: Callable | None = None, scope: str = ""
    ):
        self.rank, self.size, self.local_rank, self.local_size = rank, size, local_rank, local_size
        self._connect = connect
        self._scope = scope
        self._store = None
        self._is_beating = False
        self._groups: dict[tuple[int, ...], str] = {}
        self._visits: collections.Counter = collections.Counter()
        self._lock = threading.RLock()

    @property
    def store(self):
        """The run's store, in which keys may be set and awaited."""
        with self._lock:
            if self._store is None:
                self._store = self._connect()
            return self._store

    def group(self, ranks: Sequence[int] = ()) -> str:
        """The name of the group of these replicas, by default of all. Its first call meets them."""
        ranks = tuple(ranks) or tuple(range(self.size))
        with self._lock:
            if ranks not in self._groups:
                self._groups[ranks] = self._make_group(ranks)
            return self._groups[ranks]

    group._dynamo_marked_constant = True  # torch.compiler.assume_constant_result, which imports all of dynamo

    def _make_group(self, ranks: tuple[int, ...]) -> str:
        import torch.distributed as dist

        name = f"{self._scope}{','.join(map(str, ranks))}"
        run_store = self._connect() if self._scope else self.watched_store()
        return make_group(
            name, dist.PrefixStore(f"group/{ranks}", run_store), ranks.index(self.rank), len(ranks), run_store
        )

    def watched_store(self):
        """A connection to the store of a run of processes, where this one counts its heartbeats from now on."""
        with self._lock:
            if not self._is_beating:
                self._is_beating = True
                store = self._connect()
                store.set("replicas", str(self.size))
                store.add(f"heartbeat/{self.rank}", 1)
                _start_thread("xla-heartbeat", _beat, store, self.rank)
                _start_thread("xla-collectives", _run_idle_collectives)
        return self._connect()

    def finish_sends(self) -> None:
        """Waits until what was sent by xm.send() is received."""
        for name in self._groups.values():
            finish_sends(name)

    def leave(self) -> None:
        """Takes leave of its groups: collectives in which others wait for it fail."""
        with self._lock:
            for name in self._groups.values():
                remove_group(name)
            self._groups.clear()

    def meet(self, tag: str, payload: bytes, ranks: Sequence[int] = ()) -> list[bytes]:
        """Waits until all of `ranks` have come to this meeting, by default all replicas; returns their payloads.

        Raises RuntimeError that names those who did not come in time.
        """
        run_collectives()
        ranks = tuple(ranks) or tuple(range(self.size))
        with self._lock:
            visit = self._visits[tag]
            self._visits[tag] += 1
        place = f"meeting/{ranks}/{tag}/{visit}"
        keys = [f"{place}/{rank}" for rank in ranks]
        self.store.set(f"{place}/{self.rank}", b"." + payload)  # a store takes no empty values
        self._wait_for(keys, ranks, tag)
        payloads = [bytes(self.store.get(key))[1:] for key in keys]
        if self.store.add(f"{place}/left", 1) == len(ranks):
            for key in [*keys, f"{place}/left"]:
                self.store.delete_key(key)
        return payloads

    def _wait_for(self, keys: list[str], ranks: Sequence[int], tag: str) -> None:
        """Polls, so that Ctrl-C is heard."""
        end = time.monotonic() + timeout().total_seconds()
        for _ in _polls():
            if self.store.check(keys):
                return
            if time.monotonic() > end:
                missing = [rank for rank, key in zip(ranks, keys) if not self.store.check([key])]
                raise RuntimeError(
                    f"replicas {missing} did not come to the meeting {tag!r} within XLA_COLLECTIVE_TIMEOUT, "
                    f"which is {timeout().total_seconds():.0f} s"
                )


# ---- Threads of a process that has met others ----
_ending = threading.Event()
_failing = threading.Event()
_threads: list[threading.Thread] = []


def _start_thread(name: str, work: Callable, *args) -> None:
    thread = threading.Thread(target=work, args=args, name=name, daemon=True)
    thread.start()
    _threads.append(thread)


def finish_all_sends() -> None:
    """finish_sends() of all groups that this process is in."""
    for name in list(_groups):
        finish_sends(name)


def note_failure() -> None:
    """This process ends by an exception, by which it leaves others alone."""
    _failing.set()


def is_failing() -> bool:
    """Whether this process ends by an exception that nobody has caught."""
    return _failing.is_set() or getattr(sys, "last_type", None) is not None


def has_peers() -> bool:
    """Whether other replicas may wait for this process."""
    return bool(_threads)


def end_threads() -> None:
    """Before the interpreter ends, which a thread that comes back from C++ would not survive."""
    _ending.set()
    for thread in _threads:
        thread.join(2 * _BEAT_SECONDS)


def _beat(store, rank: int) -> None:
    """Counts up until the process or the store ends."""
    with contextlib.suppress(Exception):  # the store ends with the process that keeps it
        while not _ending.wait(_BEAT_SECONDS):
            store.add(f"heartbeat/{rank}", 1)


def _run_idle_collectives() -> None:
    """Runs what is recorded where nothing has been added for a while, if others may wait for it.

    As when a replica reads nothing of a collective's result and waits for the others elsewhere.
    """
    seen: dict[int, tuple | None] = {}
    while not _ending.wait(_IDLE_SECONDS):
        for device in range(_XLAC._xla_num_devices()):
            pending = _XLAC._xla_pending_collectives(device)
            if pending is not None and pending == seen.get(device):
                _XLAC._xla_sync_collectives(device)
            seen[device] = pending


# ---- Who this thread is ----
_thread = threading.local()
_ALONE = Replica(0, 1, 0, 1)
_process: Replica | None = None
_of_devices: dict[int, Replica] = {}  # while threads are replicas


def _connect_by_environment():
    import torch.distributed as dist

    store, _, _ = next(dist.rendezvous("env://", timeout=timeout()))
    return dist.PrefixStore(_PREFIX, store)


def current() -> Replica:
    """The replica that this thread is, or its process."""
    replica = getattr(_thread, "replica", None)
    return replica if replica is not None else process()


def of(tensor: torch.Tensor) -> Replica:
    """The replica whose tensor this is."""
    return _of_devices.get(tensor.device.index) or current()


def is_launched() -> bool:
    """Whether torchrun, or spawn() in its way, has started this process."""
    said = [_XLAC._env_is_set("RANK"), _XLAC._env_is_set("WORLD_SIZE"), _XLAC._env_is_set("MASTER_PORT")]
    return all(said) and _XLAC._env_is_set("LOCAL_RANK") and _XLAC._env_is_set("LOCAL_WORLD_SIZE")


def process() -> Replica:
    """The replica that this process is."""
    global _process
    if _process is None and is_launched() and _XLAC._env_integer("WORLD_SIZE") > 1:
        _process = Replica(
            _XLAC._env_integer("RANK"),
            _XLAC._env_integer("WORLD_SIZE"),
            _XLAC._env_integer("LOCAL_RANK"),
            _XLAC._env_integer("LOCAL_WORLD_SIZE"),
            _connect_by_environment,
        )
    return _process or _ALONE


@contextlib.contextmanager
def replica_of_device(replica: Replica, device: int) -> Iterator[None]:
    """While it lasts this thread, and all work on tensors of the device, is the replica."""
    _thread.replica, _of_devices[device] = replica, replica
    try:
        yield
    finally:
        del _thread.replica, _of_devices[device]
