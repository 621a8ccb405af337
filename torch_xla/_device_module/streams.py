"""`torch.xla.streams`: streams, which are names, and events. Operations of a device run in the order in which they are
recorded.

A stream has no queue of its own: with any current stream, operations run in the order of recording, so a wait for
another stream or its event does nothing. synchronize() waits for the whole device.
"""

import contextlib

import torch

from .. import _XLAC
from ._utils import _existing


def synchronize(device=None) -> None:
    """Runs the pending operations of the device and waits for them. Does nothing if no device was used yet."""
    index = _existing(device)
    if _XLAC._xla_runtime_is_initialized():
        _XLAC._xla_sync(index, True)


class _OfDevice(type):
    """Class of Stream and Event: instances are also those of PyTorch's classes, if they are of the device `xla`."""

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, cls.__base__) and instance.device.type == "xla"


class Stream(torch.Stream, metaclass=_OfDevice):
    """A stream of the device `xla`.

    Args:
        device: index, string or torch.device; None is the current one. RuntimeError if it does not exist.
        priority: accepted for compatibility's sake.
        kwargs: `stream_id`, `device_index` and `device_type` of an existing stream.
    """

    def __new__(cls, device=None, priority: int = 0, **kwargs):
        if "stream_id" in kwargs:
            _existing(kwargs.get("device_index", 0))
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device=torch.device("xla", _existing(device)), priority=priority)


class Event(torch.Event, metaclass=_OfDevice):
    """An event of the device `xla`, reached when the operations recorded before it have run.

    Args:
        enable_timing: for elapsed_time(); recording such an event runs the pending operations.
        blocking: accepted for compatibility's sake.
        interprocess: accepted for compatibility's sake.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:
        # PyTorch's own class, as its streams take no other.
        return torch.Event(device="xla", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def current_stream(device=None) -> torch.Stream:
    """This thread's stream."""
    return torch.accelerator.current_stream(_existing(device))


def default_stream(device=None) -> torch.Stream:
    """The stream with id 0."""
    return torch.Stream(
        stream_id=0, device_index=_existing(device), device_type=torch._C._autograd.DeviceType.PrivateUse1.value
    )


def set_stream(stream: torch.Stream) -> None:
    """Makes `stream` this thread's stream."""
    torch.accelerator.set_stream(stream)


def stream(stream: torch.Stream | None):
    """Context manager that makes `stream` the current one. None changes nothing."""
    return contextlib.nullcontext() if stream is None else stream


StreamContext = stream
