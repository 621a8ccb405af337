"""How the original's tests and programs for torch_xla 2.0 start processes and threads: forms of xmp.spawn."""

import contextlib
import os
import pickle
import tempfile
from collections.abc import Callable

from torch.multiprocessing import ProcessRaisedException

from .. import _api
from ..distributed import (
    data_parallel,
    xla_backend,  # noqa: F401 (registers the backend, as the original's module does)
    xla_multiprocessing,
)


def spawn(fn: Callable, nprocs: int | None = None, start_method: str = "spawn", args: tuple = ()):
    """xmp.spawn() with its arguments in another order."""
    return xla_multiprocessing.spawn(fn, args, nprocs, start_method=start_method)


def spawn_threads(fn: Callable, args: tuple = ()) -> None:
    """Calls `fn(number, *args)` in a thread for each device of this process; these threads are the replicas of a run.

    Raises the first exception of a thread, when all have ended.
    """
    data_parallel.run_replicas(_api.devices(), lambda number: fn(number, *args))


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
    """Calls `fn(*args, **kwargs)` in as many processes as xmp.spawn() starts, which are replicas of one run.

    Returns what each returned, by its number. Raises what `fn` raised in the process that failed first, and what
    xmp.spawn() raises.
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
