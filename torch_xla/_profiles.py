"""The parts of the begin and end of a torch.profiler profile that PyTorch's code leaves out for this device."""

import functools

import torch
from torch.profiler import ProfilerActivity

from . import _XLAC

_Profile = torch.autograd.profiler.profile
_start_in_torch = _Profile._start_trace
_exit_in_torch = _Profile.__exit__


@functools.wraps(_start_in_torch)
def _start(self) -> None:
    """Begins a profile: with CPU activity alone the device's work appears as the CPU's."""
    _start_in_torch(self)
    if self.kineto_activities == {ProfilerActivity.CPU} and self.profiler_kind == torch.autograd.ProfilerState.KINETO:
        self._of_xla = _XLAC._HostProfile()


def _wait_for_runs() -> None:
    if _XLAC._xla_runtime_is_initialized() and not _XLAC._in_bad_fork():
        for device in range(_XLAC._xla_num_devices()):
            _XLAC._xla_sync(device, True)


@functools.wraps(_exit_in_torch)
def _exit(self, *error):
    of_xla, device = self.__dict__.pop("_of_xla", None), getattr(self, "use_device", None)
    try:
        if of_xla is not None:
            _wait_for_runs()
    finally:
        if of_xla is not None:
            of_xla.close()
        if _XLAC._in_bad_fork():  # nothing to wait for here
            self.use_device = None
        try:
            result = _exit_in_torch(self, *error)
        finally:
            if device is not None:
                self.use_device = device
    return result


def install() -> None:
    """Called once, when torch_xla is imported."""
    _Profile._start_trace = _start
    _Profile.__exit__ = _exit
