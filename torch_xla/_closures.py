"""Functions that wait for the end of a step: run by the next explicit sync, in order or on a thread of their own."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

_closures: list[Callable[[], object]] = []
_async_closures: list[Callable[[], object]] = []
_running: list[Future] = []
_pool: ThreadPoolExecutor | None = None


def add(closure: Callable, args: Sequence = (), run_async: bool = False) -> None:
    """Keeps `closure(*args)` for the next sync."""
    (_async_closures if run_async else _closures).append(lambda: closure(*args))


def run() -> None:
    """Runs what was added. An exception of an asynchronous closure is raised by the run() after it."""
    global _pool
    if not (_closures or _async_closures or _running):
        return
    _raise_finished()
    if _async_closures:
        _pool = _pool or ThreadPoolExecutor(max_workers=1, thread_name_prefix="xla-step-closure")
        _running.extend(_pool.submit(closure) for closure in _take(_async_closures))
    for closure in _take(_closures):
        closure()


def _take(closures: list) -> list:
    taken = closures[:]
    closures.clear()
    return taken


def _raise_finished() -> None:
    finished = [future for future in _running if future.done()]
    for future in finished:
        _running.remove(future)
    for future in finished:
        future.result()
