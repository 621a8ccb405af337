"""Eager mode: each operation is a program of its own, except in functions that torch_xla.compile() runs."""

import contextlib
import threading
from collections.abc import Iterator

from .. import _XLAC


def eager_mode(enable: bool) -> None:
    """Switches the calling thread's mode, on all devices; threads that have not called it use the main thread's.

    XLA_LAZY=0 starts with it on. An operation is queued when it is called, and runs while the program goes on, as on a
    GPU.
    """
    _XLAC._set_own_lazy(not enable)
    if threading.current_thread() is threading.main_thread():
        _XLAC._set_lazy(not enable)


def is_eager_mode() -> bool:
    """True if operations of the calling thread run one by one."""
    return not _XLAC._lazy()


@contextlib.contextmanager
def eager_mode_context(enable: bool) -> Iterator[bool]:
    """Context manager that switches the calling thread's mode for its body. It returns the old mode."""
    was_eager = is_eager_mode()
    before = _XLAC._set_own_lazy(not enable)
    try:
        yield was_eager
    finally:
        _XLAC._set_own_lazy(before)


@contextlib.contextmanager
def as_one_operation(device: int) -> Iterator[None]:
    """Context manager: in eager mode its body is one program, like an operation, on xla:`device`."""
    with eager_mode_context(False) as was_eager:
        yield
    if was_eager:
        _XLAC._xla_sync(device, cause=_XLAC.SyncCause.EAGER)
