"""Prints a summary of a large tensor without a copy, and shapes where a device has no values.

PyTorch's printer moves a whole device tensor to the CPU, then reads a few numbers. Here it gets a tensor over the
device's memory, if the host can read that.
"""

import functools

import torch
from torch import _tensor_str
from torch.overrides import TorchFunctionMode

from . import _XLAC

_print_in_torch = _tensor_str._str_intern


class _Showing(TorchFunctionMode):
    """Within its body, tensors that the printer moves to the CPU are views of the device's memory."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.to and args[1:] == ("cpu",) and not kwargs and args[0].device.type == "xla":
            shown = _XLAC._shown_on_cpu(args[0])
            if shown is not None:
                return shown
        return func(*args, **(kwargs or {}))


def _is_summarized(tensor: torch.Tensor) -> bool:
    # A subclass decides itself how it moves to the CPU.
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    has_memory = is_plain and tensor.layout == torch.strided and not tensor.is_nested
    return has_memory and tensor.device.type == "xla" and tensor.numel() > _tensor_str.PRINT_OPTS.threshold


@functools.wraps(_print_in_torch)
def _print(tensor, **kwargs):
    if tensor.device.type == "xla" and _XLAC._why_no_values():
        return f"tensor(..., device='{tensor.device}', size={tuple(tensor.shape)}, dtype={tensor.dtype})"
    if not _is_summarized(tensor):
        return _print_in_torch(tensor, **kwargs)
    with _Showing():
        return _print_in_torch(tensor, **kwargs)


def install() -> None:
    """Called once, at the first use of the device."""
    _tensor_str._str_intern = _print
