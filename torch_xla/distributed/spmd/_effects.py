"""What a mark does beside being noted, by the place of its mesh's devices: one memory, a plugin, several processes."""

from types import ModuleType

import torch

from ... import _XLAC, runtime
from . import _over_partitions
from .mesh import Mesh
from .op_sharding import PartitionSpec
from .xla_sharded_tensor import find_mark, set_sharding, wrap_as_sharded_tensor


def _find_processes(mesh: Mesh) -> ModuleType | None:
    """The module for a mesh over processes. None for devices of this process."""
    if mesh.size() == 1 or runtime.process_count() == 1:
        return None
    from . import _over_processes  # loads torch.distributed.tensor

    return _over_processes


def check(mesh: Mesh) -> None:
    """Lets programs run over the mesh from now on. Raises RuntimeError or NotImplementedError if they cannot."""
    if module := _find_processes(mesh):
        module.check(mesh)
    if mesh.size() > 1 and not runtime.is_spmd():
        raise RuntimeError(f"a mesh of {mesh.size()} devices wants torch_xla.runtime.use_spmd() before")
    if mesh.size() > 1 and not module:
        _XLAC._run_over_all_devices()


def spread(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """Spreads the tensor's value over processes, in place.

    Returns the tensor, or another one with the value if this one cannot change. set_sharding() cuts a tensor over the
    devices of a plugin.
    """
    module = _find_processes(mesh)
    return module.spread(t, mesh, partition_spec) if module else t


def cut_gradient(t: torch.Tensor) -> None:
    """Over the devices of a plugin: gradients of the marked leaf get its mark, as a compiler may leave them whole."""
    if _XLAC._num_partitions() == 1 or not t.is_leaf or not t.requires_grad:
        return
    if _mark_gradient not in (t._post_accumulate_grad_hooks or {}).values():
        t.register_post_accumulate_grad_hook(_mark_gradient)


def _mark_gradient(t: torch.Tensor) -> None:
    sharding = find_mark(t)
    if sharding is not None and t.grad is not None and find_mark(t.grad) != sharding:
        set_sharding(t.grad, sharding)


def spread_minibatch(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """As spread(), of a tensor that is this process's part of a batch."""
    module = _find_processes(mesh)
    return module.spread_minibatch(t, mesh, partition_spec) if module else t


def take_part(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """The part of this process, or of each device of a plugin. NotImplementedError for devices that share memory."""
    if module := _find_processes(mesh):
        return module.take_part(t, mesh, partition_spec)
    return wrap_as_sharded_tensor(_over_partitions.take_shard(t, mesh.get_op_sharding(partition_spec)))


def join_part(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec, full_shape) -> torch.Tensor:
    """The tensor of shape full_shape whose part this process or each device has. Errors as take_part()."""
    if module := _find_processes(mesh):
        return module.join_part(t, mesh, partition_spec, full_shape)
    return wrap_as_sharded_tensor(_over_partitions.join_shards(t, mesh.get_op_sharding(partition_spec)))
