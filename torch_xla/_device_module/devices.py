"""Devices: their number, the current one, their properties."""

from dataclasses import dataclass

import torch

from .. import _XLAC
from ._utils import _existing


def is_available() -> bool:
    """True: the CPU engine is always there."""
    return True


def is_initialized() -> bool:
    """True: importing torch_xla initializes the device."""
    return True


def init() -> None:
    """Nothing is left to do; here for programs that call it."""


_lazy_init = init


def device_count() -> int:
    """The number of devices in this process."""
    return _XLAC._xla_num_devices()


def current_device() -> int:
    """Index of this thread's device."""
    return torch.accelerator.current_device_index()


def set_device(device) -> None:
    """Makes `device` (index, string or torch.device) this thread's device; negative numbers change nothing.

    Raises RuntimeError if it does not exist.
    """
    if not isinstance(device, int) or device >= 0:
        _XLAC._xla_set_current_device(_existing(device))


class device:
    """Context manager that makes `device` the current one. None and negative numbers change nothing."""

    def __init__(self, device):
        self.idx = -1 if device is None else device if isinstance(device, int) else _existing(device)
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = current_device()
        if self.idx >= 0:
            set_device(self.idx)

    def __exit__(self, *exc):
        set_device(self.prev_idx)
        return False


class device_of(device):
    """Context manager that makes the tensor's device the current one; nothing happens for tensors of other devices."""

    def __init__(self, tensor: torch.Tensor):
        super().__init__(tensor.device if tensor.device.type == "xla" else None)


@dataclass(frozen=True)
class DeviceProperties:
    """The result of get_device_properties()."""

    name: str
    total_memory: int  # bytes
    multi_processor_count: int  # threads that run programs


def get_device_properties(device=None) -> DeviceProperties:
    """Name, memory and threads of the device."""
    total = _XLAC._xla_memory_info(f"xla:{_existing(device)}")["bytes_limit"]
    return DeviceProperties(get_device_name(device), total, torch.get_num_threads())


def get_device_name(device=None) -> str:
    """Hardware behind the device, as `CPU:0`."""
    return _XLAC._xla_device_attributes(_existing(device))["name"]


def get_device_capability(device=None) -> dict:
    """`supported_dtypes`: the set of dtypes of the device's tensors, as in torch.accelerator."""
    return torch.accelerator.get_device_capability(_existing(device))


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that torch.autocast("xla") takes."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True."""
    return True


def _is_in_bad_fork() -> bool:
    """True in a process forked after its parent had used the device: nothing may run there."""
    return _XLAC._in_bad_fork()
