"""Saving, copying and sharing tensors by their storages: PyTorch's code assumes that a device named xla has none."""

import functools
import warnings
from collections import OrderedDict
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen

import torch
from torch.multiprocessing import reductions
from torch.overrides import has_torch_function_unary
from torch.utils.hooks import warn_if_has_hooks

from . import _XLAC

_deepcopy_in_torch = torch.Tensor.__deepcopy__
_reduce_in_torch = torch.Tensor._reduce_ex_internal
_get_restore_location_in_torch = torch.serialization._get_restore_location
_share_memory_in_torch = torch.UntypedStorage.share_memory_
_COMPRESSED = {torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}


def _has_cell(tensor: torch.Tensor) -> bool:
    """True for strided tensors of the device with their own storage: not for sparse or nested tensors or wrappers."""
    plain = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    strided = tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested
    return tensor.device.type == "xla" and plain and strided and torch._C._has_storage(tensor)


@functools.wraps(_deepcopy_in_torch)
def _deepcopy(self, memo):
    if has_torch_function_unary(self) or id(self) in memo or not _has_cell(self):
        return _deepcopy_in_torch(self, memo)
    copied = _deepcopy_in_torch(self, memo)
    if not self.is_conj() and not self.is_neg():
        with torch.no_grad():
            storage = self.untyped_storage().__deepcopy__(memo)
            copied.set_(storage, self.storage_offset(), self.size(), self.stride())
    return copied


def _sparse_parts(tensor: torch.Tensor) -> tuple:
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values(), tensor.size(), tensor.is_coalesced()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values(), tensor.size()
    return tensor.ccol_indices(), tensor.row_indices(), tensor.values(), tensor.size()


@functools.wraps(_reduce_in_torch)
def _reduce(self, proto):
    if self.device.type == "xla" and (self.is_sparse or self.layout in _COMPRESSED):
        return torch._utils._rebuild_sparse_tensor, (self.layout, _sparse_parts(self))
    if not _has_cell(self):
        return _reduce_in_torch(self, proto)
    warn_if_has_hooks(self)
    place = self.storage_offset(), tuple(self.size()), self.stride(), self.requires_grad, OrderedDict()
    metadata = torch._utils.get_tensor_metadata(self)
    rest = (metadata,) if metadata else ()
    if self.dtype in torch.storage._new_dtypes():
        return torch._utils._rebuild_tensor_v3, (self.untyped_storage(), *place, self.dtype, *rest)
    return torch._utils._rebuild_tensor_v2, (self._typed_storage(), *place, *rest)


# ---- Files of torch_xla before it had storages: a CPU tensor or an array, and the name of the device ----
def _restore_device(data: torch.Tensor, device: str):
    map_location = torch.serialization._serialization_tls.map_location
    if not callable(map_location):
        return torch._utils._get_restore_location(device)
    restored = map_location(data.untyped_storage(), device)
    return device if restored is None else restored.device


@functools.wraps(torch._utils._rebuild_device_tensor_from_cpu_tensor)
def _rebuild_from_cpu_tensor(data, dtype, device, requires_grad):
    if getattr(data.untyped_storage(), "_torch_load_uninitialized", False):
        raise RuntimeError(
            "this file cannot be loaded: torch.save(..., _use_new_zipfile_serialization=False) of an xla tensor of an "
            "earlier torch_xla has stored its device before its elements; save it again in the zip form"
        )
    tensor = data.detach().to(dtype=dtype, device=_restore_device(data, device))
    return tensor.requires_grad_(requires_grad)


@functools.wraps(torch._utils._rebuild_device_tensor_from_numpy)
def _rebuild_from_numpy(data, dtype, device, requires_grad):
    return _rebuild_from_cpu_tensor(torch.from_numpy(data), dtype, device, requires_grad)


# ---- Storages of files: a tensor that lies outside of its storage is refused, as on the CPU ----
@functools.wraps(_get_restore_location_in_torch)
def _get_restore_location(map_location):
    restore = _get_restore_location_in_torch(map_location)

    def restore_with_its_size(storage, location):
        restored = restore(storage, location)
        untyped = getattr(restored, "_untyped_storage", restored)
        if isinstance(untyped, torch.UntypedStorage) and untyped.device.type == "xla":
            _XLAC._fix_storage_size(untyped)
        return restored

    return restore_with_its_size


# ---- Storages: PyTorch's functions on their memory work on a copy on the CPU ----
def _run_on_cpu(name: str, writes: bool):
    in_torch = getattr(torch.UntypedStorage, name)

    @functools.wraps(in_torch)
    def method(self, *args, **kwargs):
        if self.device.type != "xla":
            return in_torch(self, *args, **kwargs)
        cpu = self.cpu()
        result = in_torch(cpu, *args, **kwargs)
        if writes:
            self.copy_(cpu)
        return result

    return method


@functools.wraps(torch.UntypedStorage.is_shared)
def _is_shared(self):
    return self.device.type != "xla" and torch._C.StorageBase.is_shared(self)


@functools.wraps(torch.UntypedStorage.share_memory_)
def _share_memory(self, *args, **kwargs):
    if self.device.type == "xla":
        warnings.warn(
            "share_memory_(): processes do not share the memory of the device xla, each gets a copy", stacklevel=3
        )
    return _share_memory_in_torch(self, *args, **kwargs)


# ---- Queues and pipes of torch.multiprocessing: the other process gets a copy, through shared memory of the CPU ----
def _restore_shared(cpu: torch.UntypedStorage, device: str) -> torch.UntypedStorage:
    return cpu.to(device=device)


def _reduce_storage(storage: torch.UntypedStorage):
    if storage.device.type != "xla":
        return reductions.reduce_storage(storage)
    cpu = storage.cpu()
    process = get_spawning_popen()
    if process is not None:  # an argument of a process that is started after pickling: the memory lives until then
        vars(process).setdefault("_torch_xla_storages", []).append(cpu)
    return _restore_shared, (cpu, str(storage.device))


def install_readers() -> None:
    """Installs the readers that files need before the first tensor of the device. Called once, when torch_xla is
    imported.
    """
    torch._utils._rebuild_device_tensor_from_cpu_tensor = _rebuild_from_cpu_tensor
    torch._utils._rebuild_device_tensor_from_numpy = _rebuild_from_numpy
    torch._utils._rebuild_xla_tensor = _rebuild_from_numpy
    torch.serialization._get_restore_location = _get_restore_location


def install() -> None:
    """Called once, at the first use of the device."""
    torch.Tensor.__deepcopy__ = _deepcopy
    torch.Tensor._reduce_ex_internal = _reduce
    torch.UntypedStorage._write_file = _run_on_cpu("_write_file", writes=False)
    torch.UntypedStorage._set_from_file = _run_on_cpu("_set_from_file", writes=True)
    torch.UntypedStorage._byteswap = _run_on_cpu("_byteswap", writes=True)
    torch.UntypedStorage.is_shared = _is_shared
    torch.UntypedStorage.share_memory_ = _share_memory
    reduction.register(torch.UntypedStorage, _reduce_storage)
