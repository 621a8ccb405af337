"""Forms of xmp.spawn() for the original's tests and programs for torch_xla 2.0."""

import contextlib
import os
import pickle
import tempfile
from collections.abc import Callable

from torch.multiprocessing import ProcessRaisedException

from .. import _api
from ..core import xla_env_vars
from ..distributed import (
    data_parallel,
    xla_backend,  # noqa: F401 (registers the backend, as the original's module does)
    xla_multiprocessing,
)
from ..experimental import plugins


def spawn(fn: Callable, nprocs: int | None = None, start_method: str = "spawn", args: tuple = ()):
    """xmp.spawn() with its arguments in another order."""
    return xla_multiprocessing.spawn(fn, args, nprocs, start_method=start_method)


def spawn_threads(fn: Callable, args: tuple = ()) -> None:
    """Calls `fn(number, *args)` in a thread for each device of this process; these threads are the replicas of a run.

    Raises the first exception of a thread after all have ended.
    """
    data_parallel.run_replicas(_api.devices(), lambda number: fn(number, *args))


def initialize_singleprocess() -> None:
    """Lets a plugin prepare this process as the only one of a run; xmp.spawn() does it."""
    plugins.configure_process(0, 1)


def initialize_multiprocess(local_rank: int, local_world_size: int) -> None:
    """Lets a plugin prepare this process of a run; xmp.spawn() does it in each. Sets the variables of the original's
    plugins that describe the process.
    """
    os.environ[xla_env_vars.PJRT_LOCAL_PROCESS_RANK] = str(local_rank)
    os.environ[xla_env_vars.PJRT_LOCAL_PROCESS_COUNT] = str(local_world_size)
    plugins.configure_process(local_rank, local_world_size)


def _run_thread_per_device(
    local_rank: int, local_world_size: int, fn: Callable, initializer_fn: Callable[[int, int], None]
) -> dict:
    """Calls `initializer_fn(local_rank, local_world_size)`, then `fn()` in a thread for each device of this process.

    Returns their results by the device's number. Raises the first exception of a thread after all have ended.
    """
    initializer_fn(local_rank, local_world_size)
    results = data_parallel.run_replicas(_api.devices(), lambda number: fn())
    return _merge_replica_results(list(enumerate(results)))


def _merge_replica_results(replica_results: list[tuple]) -> dict:
    """A dict of (number, result). Raises AssertionError for a number with two results."""
    merged = dict(replica_results)
    if len(merged) < len(replica_results):
        numbers = [number for number, _ in replica_results]
        twice = sorted({number for number in numbers if numbers.count(number) > 1})
        raise AssertionError(f"there is more than one result of the replicas {twice}")
    return merged


def _keep(folder: str, name: str, value: object) -> None:
    with open(os.path.join(folder, name), "wb") as file:
        pickle.dump(value, file)


def _load(folder: str, name: str):
    with open(os.path.join(folder, name), "rb") as file:
        return pickle.load(file)


def _call_and_keep(index: int, folder: str, fn: Callable, args: tuple, kwargs: dict) -> None:
    try:
        _keep(folder, f"result.{index}", fn(*args, **kwargs))
    except Exception as error:
        with contextlib.suppress(Exception):  # not everything can be pickled
            _keep(folder, f"error.{index}", error)
        raise


def run_multiprocess(fn: Callable, *args, start_method: str = "spawn", **kwargs) -> dict:
    """Calls `fn(*args, **kwargs)` in the processes that xmp.spawn() starts: the replicas of one run.

    Returns their results by number. Raises the exception of the first process that failed, and xmp.spawn()'s errors.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            xla_multiprocessing.spawn(_call_and_keep, (folder, fn, args, kwargs), start_method=start_method)
        except ProcessRaisedException as failure:
            try:
                error = _load(folder, f"error.{failure.error_index}")
            except Exception:
                raise failure from None
            raise error from failure
        numbers = sorted(int(name.removeprefix("result.")) for name in os.listdir(folder))
        return {number: _load(folder, f"result.{number}") for number in numbers}
