"""What Python keeps for a thread of the program: its settings, and what it has added for its next sync."""

from collections.abc import Callable
from typing import Generic, TypeVar

from . import _XLAC

T = TypeVar("T")
_all: list["OfThread"] = []


class OfThread(Generic[T]):
    """A value for each thread of the program, which threads of autograd and of `torch.jit.fork` share that work for it.

    Args:
        make: gives the value of a thread that has none.
        at_end: is given the value when the thread ends, on that thread. Made once: there is no end for these objects.
    """

    def __init__(self, make: Callable[[], T], at_end: Callable[[T], object] | None = None):
        self._make, self._at_end = make, at_end
        self._values: dict[int, T] = {}  # by number of the recorder
        _all.append(self)

    def get(self) -> T:
        number = _XLAC._own_recorder_number()
        value = self._values.get(number)
        return self._values.setdefault(number, self._make()) if value is None else value

    def _end(self, number: int) -> None:
        value = self._values.pop(number, None)
        if value is not None and self._at_end is not None:
            self._at_end(value)


def _end_thread(number: int) -> None:
    for of_thread in _all:
        of_thread._end(number)


_XLAC._set_end_of_thread(_end_thread)
