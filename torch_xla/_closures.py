"""Functions that wait for the end of a step: run by the next explicit sync, in order or on a thread of their own.

As in the original, they belong to the thread's current device at the time of the call: a thread that trains on another
device does not run them.
"""

from collections.abc import Callable, Sequence

from . import _XLAC
from .utils.closures import AsyncClosureHandler

Closure = Callable[[], object]


class _StepClosures:
    """The closures of one device."""

    def __init__(self):
        self._closures: list[Closure] = []
        self._async_closures: list[Closure] = []
        self._handler: AsyncClosureHandler | None = None  # from the first asynchronous closure on

    def add(self, closure: Closure, run_async: bool) -> None:
        (self._async_closures if run_async else self._closures).append(closure)

    def run(self) -> None:
        if self._handler is not None:
            self._handler.raise_failed()
        if self._async_closures:
            self._handler = self._handler or AsyncClosureHandler()
            started, self._async_closures = self._async_closures, []
            self._handler.run_all(started)
        closures, self._closures = self._closures, []
        for closure in closures:
            closure()


_of_device: dict[str, _StepClosures] = {}


def add(closure: Callable, args: Sequence = (), run_async: bool = False) -> None:
    """Keeps `closure(*args)` for the next sync of a thread whose current device is this thread's."""
    of_device = _of_device.setdefault(_XLAC._xla_get_default_device(), _StepClosures())
    of_device.add(lambda: closure(*args), run_async)


def run() -> None:
    """Runs the closures of the current device.

    Raises RuntimeError, caused by its exception, if an earlier asynchronous closure has failed.
    """
    if _of_device and (of_device := _of_device.get(_XLAC._xla_get_default_device())):
        of_device.run()
