"""Functions that wait for the end of a step: run by the next explicit sync, in order or on a thread of their own.

They belong to the device that is the thread's current one when they are added, as in the original: a thread that trains
on another device does not run them.
"""

import concurrent.futures
from collections.abc import Callable, Iterable, Sequence

from . import _XLAC

_MAX_WAITING = 100  # asynchronous closures of a device that hold their arguments; the next sync waits for the oldest

Closure = Callable[[], object]


class _Thread:
    """Runs closures in order on a thread of its own."""

    def __init__(self):
        self._pool = concurrent.futures.ThreadPoolExecutor(1, "xla-step-closure")
        self._running: list[concurrent.futures.Future] = []

    def run_all(self, closures: Iterable[Closure]) -> None:
        for closure in closures:
            if len(self._running) >= _MAX_WAITING:
                concurrent.futures.wait(self._running[:1])
            self._running.append(self._pool.submit(closure))

    def raise_failed(self) -> None:
        """Raises RuntimeError for the first closure that has failed since the last call, if there is one."""
        finished = [future for future in self._running if future.done()]
        self._running = [future for future in self._running if future not in finished]
        for future in finished:
            if error := future.exception():
                raise RuntimeError("an asynchronous closure has failed") from error


class _StepClosures:
    """What was added on one device."""

    def __init__(self):
        self._closures: list[Closure] = []
        self._async_closures: list[Closure] = []
        self._thread: _Thread | None = None  # from the first asynchronous closure on

    def add(self, closure: Closure, run_async: bool) -> None:
        (self._async_closures if run_async else self._closures).append(closure)

    def run(self) -> None:
        if self._thread is not None:
            self._thread.raise_failed()
        if self._async_closures:
            self._thread = self._thread or _Thread()
            started, self._async_closures = self._async_closures, []
            self._thread.run_all(started)
        closures, self._closures = self._closures, []
        for closure in closures:
            closure()


_of_device: dict[str, _StepClosures] = {}


def add(closure: Callable, args: Sequence = (), run_async: bool = False) -> None:
    """Keeps `closure(*args)` for the next sync of a thread whose current device is this thread's."""
    of_device = _of_device.setdefault(_XLAC._xla_get_default_device(), _StepClosures())
    of_device.add(lambda: closure(*args), run_async)


def run() -> None:
    """Runs what was added on the current device.

    Raises RuntimeError, caused by its exception, if an asynchronous closure of before has failed.
    """
    if _of_device and (of_device := _of_device.get(_XLAC._xla_get_default_device())):
        of_device.run()
