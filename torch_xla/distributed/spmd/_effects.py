"""What a mark does beside being noted, which depends on where the devices of its mesh are."""

from types import ModuleType

import torch

from ... import _XLAC, runtime
from . import _on_plugin, _over_processes
from .mesh import Mesh
from .op_sharding import OpSharding, PartitionSpec


def _find(mesh: Mesh) -> ModuleType | None:
    """The module for the place of the mesh's devices. None where marks change no program: one device, one memory."""
    if mesh.size() == 1:
        return None
    if runtime.process_count() > 1:
        return _over_processes
    return None if _XLAC._xla_spreads_values() else _on_plugin


def check(mesh: Mesh) -> None:
    """Raises RuntimeError or NotImplementedError if tensors cannot be spread over the mesh now."""
    if module := _find(mesh):
        module.check(mesh)
    if mesh.size() > 1 and not runtime.is_spmd():
        raise RuntimeError(f"a mesh of {mesh.size()} devices wants torch_xla.runtime.use_spmd() before")


def spread(t: torch.Tensor, sharding: OpSharding, mesh: Mesh, partition_spec: PartitionSpec) -> None:
    """Spreads the tensor's value, in place. `sharding` is that of the spec over the mesh, which check() allows."""
    if module := _find(mesh):
        module.spread(t, sharding, mesh, partition_spec)
