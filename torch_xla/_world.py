"""The replicas of a run: this thread's replica, and its meetings with the others.

A run is one replica, unless `xmp.spawn` or torchrun started its processes (their environment says what each is) or
`DataParallel` its threads, where each device is a replica.
"""

import collections
import contextlib
import datetime
import threading
from collections.abc import Callable, Iterator, Sequence

import torch

from . import _payloads, _peers, _XLAC

_NAMING = datetime.timedelta(seconds=4)  # the end of a timeout, for finding the lost replicas
LOOPBACK = "127.0.0.1"
_PREFIX = "torch_xla"
_groups: set[str] = set()  # names of this process's groups


def run_collectives() -> None:
    """Runs the recorded operations if others may wait for them. Call it before another wait for others."""
    _XLAC._xla_sync_collectives(_XLAC._xla_current_device())


def make_group(
    name: str,
    store,
    rank: int,
    size: int,
    run: tuple["Replica", Sequence[int]] | None = None,
) -> str:
    """Makes a group for the operations torch.ops.xla and returns its name. Meets its other members.

    Args:
        store: for the meeting, and for this group alone.
        run: this replica in its run, and the numbers of the group's replicas; by default no run.
    """
    import torch.distributed as dist

    run_collectives()
    replica, ranks = run or (None, range(size))
    run_store = replica.watched_store() if replica else None
    store.set(f"here/{rank}", "1")
    _peers.wait_for(store, [f"here/{i}" for i in range(size)], ranks, f"the making of the group {[*ranks]}", run_store)
    group = dist.ProcessGroup(store if run_store is None else run_store, rank, size)
    gloo = _make_gloo(store, rank, size, bool(replica) and replica.local_size == replica.size)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
    # Programs compare their collectives over a connection of their own, as a wait blocks a connection.
    torch.ops.xla._add_group(name, group.boxed(), _peers.boxed(store.clone(), rank, size), ranks[rank])
    _groups.add(name)
    return name


def _make_gloo(store, rank: int, size: int, is_local: bool):
    """The group's backend. On one machine it takes no connections from other machines."""
    import torch.distributed as dist

    timeout = _peers.timeout() - min(_NAMING, _peers.timeout() / 2)
    if not is_local:
        return dist.ProcessGroupGloo(store, rank, size, timeout)
    options = dist.ProcessGroupGloo._Options()
    options._timeout = timeout
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=LOOPBACK)]
    return dist.ProcessGroupGloo(store, rank, size, options)


def remove_group(name: str) -> None:
    """Leaves a group: collectives in which others wait for this replica fail."""
    torch.ops.xla._remove_group(name)
    _groups.discard(name)


def finish_sends(name: str) -> None:
    """Waits until the group's sends are received. Polls, so that Ctrl-C ends the wait.

    Raises RuntimeError if a send has failed.
    """
    for _ in _peers.polls():
        if not torch.ops.xla._is_sending(name):
            return


class Replica:
    """One replica of a run. Any thread.

    Args:
        rank, size: its number, and the number of replicas.
        local_rank, local_size: the same on this machine.
        connect: gives a new connection to the run's store; None without other replicas.
        scope: prefix of the names of its groups.
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
        store = dist.PrefixStore(f"group/{ranks}", self._connect())
        return make_group(name, store, ranks.index(self.rank), len(ranks), (self, ranks))

    def watched_store(self):
        """A connection to the run's store; from now on this replica reports there that it is alive."""
        self._join()
        return self._connect()

    def _join(self) -> None:
        with self._lock:
            if not self._scope:  # threads end with their process
                self.count_heartbeats()
                _peers.serve()

    def count_heartbeats(self) -> None:
        """Counts this process's heartbeats in the run's store from now on."""
        with self._lock:
            if not self._is_beating and self.size > 1:
                self._is_beating = True
                _peers.start_heartbeat(self._connect(), self.rank, self.size)

    def finish_sends(self) -> None:
        """Waits until all sends of xm.send() are received."""
        for name in self._groups.values():
            finish_sends(name)

    def leave(self) -> None:
        """Leaves the run: collectives and meetings in which others wait for it fail."""
        with self._lock:
            for name in self._groups.values():
                remove_group(name)
            self._groups.clear()
            _peers.leave(self.store, self.rank)

    def meet(self, tag: str, payload: bytes, ranks: Sequence[int] = ()) -> list[bytes]:
        """Waits until all of `ranks`, by default all replicas, have come to this meeting; returns their payloads.

        Raises RuntimeError that names the late ones.
        """
        self._join()
        run_collectives()
        ranks = tuple(ranks) or tuple(range(self.size))
        with self._lock:
            visit = self._visits[tag]
            self._visits[tag] += 1
        place = f"meeting/{ranks}/{tag}/{visit}"
        keys = [f"{place}/{rank}" for rank in ranks]
        self.store.set(f"{place}/{self.rank}", _payloads.seal(f"{place}/{self.rank}", payload))
        _peers.wait_for(self.store, keys, ranks, f"the meeting {tag!r}", self.store)
        payloads = [_payloads.unseal(key, bytes(self.store.get(key))) for key in keys]
        if self.store.add(f"{place}/left", 1) == len(ranks):
            for key in [*keys, f"{place}/left"]:
                self.store.delete_key(key)
        return payloads

    @property
    def is_private(self) -> bool:
        """Whether only the run's other replicas can write the messages of a meeting."""
        return bool(self._scope) or _payloads.has_secret()


def finish_all_sends() -> None:
    """finish_sends() of all groups of this process."""
    for name in list(_groups):
        finish_sends(name)


# ---- Who this thread is ----
_thread = threading.local()
_ALONE = Replica(0, 1, 0, 1)
_process: Replica | None = None
_of_devices: dict[int, Replica] = {}  # while threads are replicas


def _connect_by_environment():
    import torch.distributed as dist

    store, _, _ = next(dist.rendezvous("env://", timeout=_peers.timeout()))
    return dist.PrefixStore(_PREFIX, store)


def current() -> Replica:
    """This thread's replica, or its process's."""
    replica = getattr(_thread, "replica", None)
    return replica if replica is not None else process()


def of(tensor: torch.Tensor) -> Replica:
    """The replica that the tensor belongs to."""
    return _of_devices.get(tensor.device.index) or current()


def is_launched() -> bool:
    """Whether torchrun, or spawn() in the same way, has started this process."""
    said = [_XLAC._env_is_set("RANK"), _XLAC._env_is_set("WORLD_SIZE"), _XLAC._env_is_set("MASTER_PORT")]
    return all(said) and _XLAC._env_is_set("LOCAL_RANK") and _XLAC._env_is_set("LOCAL_WORLD_SIZE")


def process() -> Replica:
    """This process's replica."""
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
    """Within it this thread, and all work on tensors of the device, belong to the replica."""
    _thread.replica, _of_devices[device] = replica, replica
    try:
        yield
    finally:
        del _thread.replica, _of_devices[device]
