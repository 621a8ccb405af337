"""What a mark does beside being noted, which depends on where the devices of its mesh are."""

from types import ModuleType

import torch

from ... import _XLAC, runtime
from . import _on_plugin
from .mesh import Mesh
from .op_sharding import OpSharding, PartitionSpec


def _find(mesh: Mesh) -> ModuleType | None:
    """The module for the place of the mesh's devices. None where marks change no program: one device, one memory."""
    if mesh.size() == 1:
        return None
    if runtime.process_count() > 1:
        from . import _over_processes  # loads torch.distributed.tensor

        return _over_processes
    return None if _XLAC._xla_spreads_values() else _on_plugin


def _find_processes(mesh: Mesh) -> ModuleType:
    module = _find(mesh)
    if not hasattr(module, "take_part"):
        raise NotImplementedError(
            f"a program that says what each device of a mesh of {mesh.size()} does is not there yet for devices of one "
            "process; several processes can have it"
        )
    return module


def check(mesh: Mesh) -> None:
    """Raises RuntimeError or NotImplementedError if tensors cannot be spread over the mesh now."""
    if module := _find(mesh):
        module.check(mesh)
    if mesh.size() > 1 and not runtime.is_spmd():
        raise RuntimeError(f"a mesh of {mesh.size()} devices wants torch_xla.runtime.use_spmd() before")


def spread(t: torch.Tensor, sharding: OpSharding, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """Spreads the tensor's value, in place. `sharding` is that of the spec over the mesh, which check() allows.

    Returns the tensor, or another one with the value if this one cannot change.
    """
    module = _find(mesh)
    return t if module is None else module.spread(t, sharding, mesh, partition_spec)


def spread_minibatch(t: torch.Tensor, sharding: OpSharding, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """As spread(), of a tensor that is this process's part of a batch."""
    module = _find(mesh)
    if hasattr(module, "spread_minibatch"):
        return module.spread_minibatch(t, mesh, partition_spec)
    return spread(t, sharding, mesh, partition_spec)


def take_part(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """This process's part of the tensor, as a plain tensor. NotImplementedError for devices of one process."""
    return _find_processes(mesh).take_part(t, mesh, partition_spec)


def join_part(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec, full_shape) -> torch.Tensor:
    """The tensor of shape full_shape whose part this process has. NotImplementedError for devices of one process."""
    return _find_processes(mesh).join_part(t, mesh, partition_spec, full_shape)
