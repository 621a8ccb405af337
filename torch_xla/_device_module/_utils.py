"""Indexes and names of the device as arguments of `torch.xla`."""

import torch

from .. import _XLAC


def _get_device_index(device, optional: bool = True) -> int:
    """Index of `device`: None and a device without index are the current one. Raises ValueError for another type."""
    if isinstance(device, int):
        return device
    if device is None:
        if not optional:
            raise ValueError("a device is needed, as 'xla:0' or 0")
        return torch.accelerator.current_device_index()
    device = torch.device(device)
    if device.type != "xla":
        raise ValueError(f"expected an xla device, but got {device}")
    return torch.accelerator.current_device_index() if device.index is None else device.index


def _existing(device) -> int:
    """Index of `device`. Raises RuntimeError with the number of devices if it does not exist."""
    index = _get_device_index(device)
    if device is not None:  # the current one exists; torch.compile traces this without the check
        _XLAC._xla_check_device(index)
    return index
