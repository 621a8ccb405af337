"""DLPack: other libraries get the elements of device tensors as memory of the CPU."""

import functools

import torch
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

_to_dlpack_in_torch = torch.utils.dlpack.to_dlpack
_dlpack_in_torch = torch.Tensor.__dlpack__
_dlpack_device_in_torch = torch.Tensor.__dlpack_device__


def _is_exported(tensor: torch.Tensor) -> bool:
    return not has_torch_function_unary(tensor) and tensor.device.type == "xla"


def to_dlpack(xla_tensor: torch.Tensor):
    """A capsule with a copy of the tensor's elements, of the same shape, on the CPU. It runs pending operations.

    Only the consumer owns the memory: writes there do not change the tensor. Tensors of other devices share theirs, as
    torch.utils.dlpack.to_dlpack does.
    """
    return _to_dlpack_in_torch(xla_tensor.detach().cpu() if _is_exported(xla_tensor) else xla_tensor)


def from_dlpack(ext_tensor) -> torch.Tensor:
    """A device tensor with a copy of the elements of `ext_tensor`: a capsule, or an object with `__dlpack__`."""
    return torch.from_dlpack(ext_tensor).to("xla")


@functools.wraps(_dlpack_in_torch)
def _dlpack(self, **kwargs):
    if not _is_exported(self):
        return _dlpack_in_torch(self, **kwargs)
    if self.is_conj():  # as PyTorch; the copy would have no such bit
        raise BufferError("Can't export tensors with the conjugate bit set")
    if kwargs.get("copy") is False:
        raise BufferError("an xla tensor cannot be exported without a copy")
    return _dlpack_in_torch(self.cpu(), **{**kwargs, "copy": None})


@functools.wraps(_dlpack_device_in_torch)
def _dlpack_device(self):
    return (DLDeviceType.kDLCPU, 0) if _is_exported(self) else _dlpack_device_in_torch(self)


def _install_functions() -> None:
    """Called once, when torch_xla is imported: programs import them before they use the device."""
    torch.to_dlpack = torch.utils.dlpack.to_dlpack = to_dlpack


def _install_methods() -> None:
    """Called once, at the first use of the device."""
    torch.Tensor.__dlpack__ = _dlpack
    torch.Tensor.__dlpack_device__ = _dlpack_device
