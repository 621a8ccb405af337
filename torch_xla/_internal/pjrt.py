"""How the original's tests and programs for torch_xla 2.0 start processes: forms of xmp.spawn."""

import os
import pickle
import tempfile
from collections.abc import Callable

from ..distributed import xla_multiprocessing


def spawn(fn: Callable, nprocs: int | None = None, start_method: str = "spawn", args: tuple = ()):
    """xmp.spawn() with its arguments in another order."""
    return xla_multiprocessing.spawn(fn, args, nprocs, start_method=start_method)


def _call_and_keep(index: int, folder: str, fn: Callable, args: tuple, kwargs: dict) -> None:
    with open(os.path.join(folder, str(index)), "wb") as file:
        pickle.dump(fn(*args, **kwargs), file)


def run_multiprocess(fn: Callable, *args, start_method: str = "spawn", **kwargs) -> dict:
    """Calls `fn(*args, **kwargs)` in as many processes as xmp.spawn() starts, which are replicas of one run.

    Returns what each returned, by its number. Raises what xmp.spawn() raises.
    """
    with tempfile.TemporaryDirectory() as folder:
        xla_multiprocessing.spawn(_call_and_keep, (folder, fn, args, kwargs), start_method=start_method)
        results = {}
        for number in sorted(map(int, os.listdir(folder))):
            with open(os.path.join(folder, str(number)), "rb") as file:
                results[number] = pickle.load(file)
    return results
