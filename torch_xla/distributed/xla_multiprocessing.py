"""Starting the processes of a run (`xmp`): each is a replica with its own device."""

import os
import socket
from collections.abc import Callable
from multiprocessing import util

import torch
import torch.multiprocessing

from .. import _payloads, _peers, _setup, _world, _XLAC
from ..experimental import plugins
from . import xla_backend  # noqa: F401 (registers the backend and `xla://`, as the original's module does)


def spawn(
    fn: Callable,
    args: tuple = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
):
    """Calls `fn(number, *args)` in each process of the run; a run of one process is this one.

    Under torchrun, which has started the processes, each calls `fn` with its own number.

    Args:
        fn: a function that can be pickled; takes the process's number first.
        nprocs: the number of processes; by default CPU_NUM_DEVICES. Each has one device and its share of the
            processors.
        join: wait until all have ended. If one ends with an exception, the others are ended too.
        daemon: the processes end with this one.
        start_method: "spawn", or "fork", if this process has not used the device yet.

    Returns None, or with join=False and several processes the context of torch.multiprocessing.spawn(); its join()
    waits. Raises torch.multiprocessing.ProcessRaisedException with the traceback of the process that failed first,
    RuntimeError for a fork after use of the device and for a missing plugin of PJRT_DEVICE, ValueError for an nprocs
    that does not fit.
    """
    _XLAC._check_choice()
    if _world.is_launched():
        process = _world.process()
        if nprocs not in (None, 1, process.size):
            raise ValueError(f"nprocs={nprocs} does not fit the run, whose {process.size} processes are running")
        plugins.configure_process(process.local_rank, process.local_size)
        fn(process.rank, *args)
        return None
    count = _default_count() if nprocs is None else nprocs
    if count < 1:
        raise ValueError(f"nprocs={nprocs} when it should be at least 1")
    if count == 1:
        plugins.configure_process(0, 1)
        fn(0, *args)
        return None
    if start_method == "fork" and _XLAC._xla_runtime_is_initialized():
        raise RuntimeError(
            "this process has used the device, which a forked process cannot do then: "
            "call spawn(start_method='spawn'), or use the device in the new processes only"
        )
    return _start(fn, args, count, join, daemon, start_method)


def _default_count() -> int:
    return _XLAC._env_integer("CPU_NUM_DEVICES")


def _start(fn: Callable, args: tuple, count: int, join: bool, daemon: bool, start_method: str):
    store = _make_store()
    if start_method == "fork":
        _XLAC._end_team()  # a child would wait forever for the threads of this thread's OpenMP team
    context = torch.multiprocessing.start_processes(
        _run, (fn, args, count, store.port, os.urandom(32).hex()), count, False, daemon, start_method
    )
    context.store = store  # the run's store; it lives while a process may use it
    if not join:
        return context
    try:
        while not context.join():
            pass
    except BaseException:
        for process in context.processes:
            process.terminate()
        raise
    return None


def _make_store():
    """The run's store. It takes connections of this machine only."""
    import torch.distributed as dist

    with socket.create_server((_world.LOOPBACK, 0), backlog=1024) as listener:
        port = listener.getsockname()[1]
        return dist.TCPStore(
            _world.LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )


def _run(index: int, fn: Callable, args: tuple, count: int, port: int, secret: str) -> None:
    """The new process: sets its environment as torchrun would."""
    said = {
        "RANK": index,
        "WORLD_SIZE": count,
        "LOCAL_RANK": index,
        "LOCAL_WORLD_SIZE": count,
        "MASTER_ADDR": _world.LOOPBACK,
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": True,  # the process that started this one keeps the store
        "TORCHELASTIC_RESTART_COUNT": 0,
        "CPU_NUM_DEVICES": 1,
        "GLOO_SOCKET_IFNAME": "lo",
        _payloads.SECRET: secret,
    }
    for name, value in said.items():
        os.environ[name] = str(value)
    share = max(1, len(os.sched_getaffinity(0)) // count)
    torch.set_num_threads(min(share, torch.get_num_threads()))
    _world.process().count_heartbeats()
    util.Finalize(None, _setup.finish, exitpriority=0)  # a forked process ends without functions of atexit
    try:
        plugins.configure_process(index, count)
        fn(index, *args)
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code:
            _peers.note_failure()
        raise


class MpModelWrapper:
    """A model in memory that processes share until each moves it to its device, one after the other.

    Args:
        model: on the CPU.
    """

    def __init__(self, model: torch.nn.Module):
        self._model = model.share_memory()
        self._lock = torch.multiprocessing.get_context("spawn").Lock()

    def to(self, device) -> torch.nn.Module:
        """Moves the model to `device` and returns it."""
        with self._lock:
            return self._model.to(device)


class MpSerialExecutor:
    """Calls a function in one process after the other, for downloads and the like."""

    def __init__(self):
        self._lock = torch.multiprocessing.get_context("spawn").Lock()

    def run(self, fn: Callable):
        """Returns `fn()`."""
        with self._lock:
            return fn()
