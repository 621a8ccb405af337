"""Functions and events that wait for the data of a tensor, while the program goes on."""

import threading
from collections.abc import Callable

import torch

from .. import _XLAC


def _wait(value: torch.Tensor) -> None:
    """Waits until a queued value has been computed. Raises the error of its run."""
    try:
        _XLAC._unsafe_buffer_pointer(value)
    except Exception:  # of the run, or there is no memory that the host can read
        if _XLAC._is_placecholder(value):
            raise


def on_ready_callback(tensor: torch.Tensor, callback: Callable[[torch.Tensor], object]) -> None:
    """Calls `callback(tensor)` on a separate thread when the tensor's present value has been computed.

    Starts the pending operations of the tensor's device. The callback is also called if the run has failed. That error
    (docs/errors.md; a read of the tensor raises it too) and the callback's own go to `threading.excepthook`, which
    prints them. The exit of the process waits for the callback. Raises ValueError for a tensor of another device, and,
    as torch_xla.sync(), an error of an earlier run.
    """
    if tensor.device.type != "xla":
        raise ValueError(f"expected a tensor on the device xla, but got one on {tensor.device}")
    value = tensor.detach().clone()  # shares the memory, and stays as it is when the tensor is written
    _XLAC._xla_sync(tensor.device.index)

    def wait_and_call() -> None:
        try:
            _wait(value)
        finally:
            callback(tensor)

    threading.Thread(target=wait_and_call, name="xla-ready-callback").start()


def on_ready_event(tensor: torch.Tensor) -> threading.Event:
    """An event that is set when the tensor's present value has been computed or its run has failed.

    Starts pending operations and raises like on_ready_callback().
    """
    event = threading.Event()
    on_ready_callback(tensor, lambda _: event.set())
    return event
