"""Functions that wait for the end of a step: run by the next explicit sync, in order or on a thread of their own.

They belong to the thread that added them and to its current device at that time, as its pending operations do: a
thread that trains on another device, or another model on this one, does not run them. The next sync of the device runs
the closures of a thread that has ended.
"""

from collections.abc import Callable, Sequence

from . import _XLAC
from ._threads import OfThread
from .utils.closures import AsyncClosureHandler

Closure = Callable[[], object]


class _StepClosures:
    """The closures of one thread on one device."""

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

    def has_ended(self) -> bool:
        """Whether nothing is left to be run or to be raised."""
        is_quiet = self._handler is None or self._handler.has_ended()
        return is_quiet and not (self._closures or self._async_closures)


_left: list[tuple[str, _StepClosures]] = []  # with the device, of threads that have ended


def _leave(own: dict[str, _StepClosures]) -> None:
    _left.extend(own.items())


_own: OfThread[dict[str, _StepClosures]] = OfThread(dict, at_end=_leave)  # by device


def add(closure: Callable, args: Sequence = (), run_async: bool = False) -> None:
    """Keeps `closure(*args)` for the calling thread's next sync of its current device."""
    of_device = _own.get().setdefault(_XLAC._xla_get_default_device(), _StepClosures())
    of_device.add(lambda: closure(*args), run_async)


def _run_left(entry: tuple[str, _StepClosures]) -> None:
    try:
        _left.remove(entry)
    except ValueError:  # another thread has taken it
        return
    try:
        entry[1].run()
    finally:
        if not entry[1].has_ended():
            _left.append(entry)


def run() -> None:
    """Runs the closures of this thread, and those of ended threads, on the current device.

    Raises RuntimeError, caused by its exception, if an earlier asynchronous closure has failed.
    """
    own = _own.get()
    if not own and not _left:
        return
    device = _XLAC._xla_get_default_device()
    for entry in [entry for entry in _left if entry[0] == device]:
        _run_left(entry)
    if of_device := own.get(device):
        of_device.run()
