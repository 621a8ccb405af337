"""Marks tensors as spread over a mesh (SPMD).

The program sees a marked tensor as one tensor. On the embedded engine all devices of a process share one memory and the
same processors: the tensor stays whole, its program runs once on all processors, and the mark assigns parts to devices.
Over several processes each holds its part. On a plugin's devices it lies in tiles, and each program has a partition on
each device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ... import runtime
from ...core import xla_model
from . import _effects
from ._dtensor_face import spec_of_placements
from ._over_partitions import set_manual
from .mesh import get_1d_mesh, get_global_mesh, HybridMesh, Mesh, set_global_mesh  # noqa: F401 (also for users)
from .op_sharding import OpSharding, PartitionSpec, ShardingType
from .xla_sharded_tensor import (
    find_mark,
    find_sharding,
    remove_sharding,
    set_sharding,
    wrap_as_sharded_tensor,
    XLAShardedTensor,
)


# ---- Marks ----
def _sharding_of(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> OpSharding:
    """The sharding for a mark. Raises mark_sharding()'s errors."""
    if t.device.type != "xla":
        raise ValueError(f"only tensors on the device xla can be sharded, and this one is on {t.device}")
    if len(partition_spec) != t.dim():
        raise ValueError(f"partition_spec {partition_spec} has not one entry for each dim of shape {list(t.shape)}")
    _effects.check(mesh)
    return mesh.get_op_sharding(tuple(partition_spec))


def _mark(t: torch.Tensor, sharding: OpSharding, mesh: Mesh, partition_spec: PartitionSpec) -> XLAShardedTensor:
    t = _effects.spread(t, mesh, partition_spec)
    set_sharding(t, sharding)
    _effects.cut_gradient(t)
    return wrap_as_sharded_tensor(t, mesh.mesh_shape, mesh.numbers_of(partition_spec))


def mark_sharding(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> XLAShardedTensor:
    """Spreads the tensor over the mesh, in place.

    Args:
        t: a tensor on the device xla.
        mesh: the devices.
        partition_spec: for each dim of `t` the axis of the mesh (number or name) that cuts it, a tuple of axes, or None
            for an uncut dim.

    Over several processes the object `t` becomes an XLAShardedTensor that holds this process's part; all processes call
    it, with the same value. A Parameter stays one, in its module and in optimizers, with its attributes, its gradient
    and their states. Other tensors over the same memory keep the whole value, and hooks on `t` are lost. If autograd
    has saved a result `t` already, `t` stays as it is, and what this function returns is spread.

    Returns `t` as an XLAShardedTensor with its shards. Raises ValueError for a tensor elsewhere or a spec that does not
    fit, RuntimeError for a tensor that is already cut in another way, NotImplementedError for a mesh over
    processes with plugins. Programs that XLA's partitioner does not know raise it when they are compiled.
    """
    sharding, before = _sharding_of(t, mesh, partition_spec), find_mark(t)
    if before not in (None, sharding) and before.type is not ShardingType.REPLICATED:
        raise RuntimeError(f"the tensor is sharded as {before}: call clear_sharding() to shard it in another way")
    return _mark(t, sharding, mesh, partition_spec)


def annotate_custom_sharding(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> XLAShardedTensor:
    """As mark_sharding(), also for a tensor that is cut in another way."""
    return _mark(t, _sharding_of(t, mesh, partition_spec), mesh, partition_spec)


def _redistribute(t: XLAShardedTensor, device_mesh: Mesh, placements: Sequence, *, async_op: bool = False):
    """The tensor sharded in another way: this one, in place, or with async_op a copy.

    Args:
        placements: a Shard or Replicate for each axis of the mesh.

    Raises ValueError for another number of placements, IndexError for a dim that does not exist, NotImplementedError
    for a Partial.
    """
    if len(placements) != len(device_mesh.mesh_shape):
        raise ValueError(f"{len(placements)} placements for a mesh of {len(device_mesh.mesh_shape)} axes")
    if any(placement.is_partial() for placement in placements):
        raise NotImplementedError(f"{list(placements)} are not all of Shard and Replicate")
    whole = t.global_tensor.clone() if async_op else t.global_tensor
    return annotate_custom_sharding(whole, device_mesh, spec_of_placements(placements, t.dim()))


XLAShardedTensor.redistribute = _redistribute


def _marked_copy(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    if _get_current_dispatch_mode() is not None:  # PyTorch records a graph: one operation of it
        return torch.ops.xla.aot_mark_sharding(t, str(mesh), str(tuple(partition_spec)))
    return mark_sharding(t.clone(), mesh, partition_spec).global_tensor


class MarkShardingFunction(torch.autograd.Function):
    """A sharded copy of the tensor; its gradient is sharded as well: MarkShardingFunction.apply()."""

    @staticmethod
    def forward(ctx, torch_tensor: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
        """Arguments as of mark_sharding()."""
        ctx.mesh, ctx.partition_spec = mesh, partition_spec
        return _marked_copy(torch_tensor, mesh, partition_spec)

    @staticmethod
    def backward(ctx, grad_output: torch.Tensor) -> tuple:
        """The gradient, sharded."""
        return _marked_copy(grad_output, ctx.mesh, ctx.partition_spec), None, None


def mark_sharding_with_gradients(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """A sharded copy of the tensor; its gradient is sharded as well. Arguments and errors as of mark_sharding()."""
    return MarkShardingFunction.apply(t, mesh, partition_spec)


def clear_sharding(t: torch.Tensor) -> torch.Tensor:
    """Undoes mark_sharding(). Returns the plain tensor."""
    remove_sharding(t)
    return t._join() if isinstance(t, XLAShardedTensor) else t


def _shard_alike(x: torch.Tensor, y: torch.Tensor, sharding: OpSharding) -> None:
    first, second = (y, x) if find_sharding(x) is None else (x, y)
    if isinstance(first, XLAShardedTensor):
        first._spread_alike(second)
    set_sharding(x, sharding)
    set_sharding(y, sharding)


def shard_as(a, b) -> tuple:
    """Shards two nests of tensors alike: of each pair one takes the other's sharding. Returns both.

    Raises ValueError for nests or shapes that differ.
    """
    a_leaves, a_spec = pytree.tree_flatten(a)
    b_leaves, b_spec = pytree.tree_flatten(b)
    if a_spec != b_spec:
        raise ValueError(f"the nests differ: {a_spec} and {b_spec}")
    for x, y in zip(a_leaves, b_leaves):
        if x.shape != y.shape:
            raise ValueError(f"shapes {list(x.shape)} and {list(y.shape)} are sharded alike only if they are equal")
        sharding = find_sharding(x) or find_sharding(y)
        if sharding is not None:
            _shard_alike(x, y, sharding)
    return a, b


# ---- Wrappers ----
def unwrap_sharded_tensor(t: torch.Tensor) -> torch.Tensor:
    """The tensor as a plain one."""
    return t.global_tensor if isinstance(t, XLAShardedTensor) else t


def wrap_if_sharded(x):
    """`x` as an XLAShardedTensor if it is a tensor cut into shards, else itself."""
    is_tensor = isinstance(x, torch.Tensor) and x.device.type == "xla" and not isinstance(x, XLAShardedTensor)
    sharding = find_sharding(x) if is_tensor else None
    return x if sharding is None or sharding.type is ShardingType.REPLICATED else wrap_as_sharded_tensor(x)


@dataclass
class ShardingSpec:
    """The axes of the mesh for the dims of a tensor.

    Args:
        mesh, partition_spec: as for mark_sharding().
        minibatch: each process holds its own part of the batch (dim 0), with a size that is a multiple of its devices
            and the same for all. Processes that differ only in axes that do not cut the batch hold the same part.

    Raises ValueError for an axis that does not exist or occurs twice, and RuntimeError or NotImplementedError as
    mark_sharding().
    """

    mesh: Mesh
    partition_spec: PartitionSpec
    minibatch: bool = False

    def __post_init__(self):
        _effects.check(self.mesh)
        self.mesh.get_op_sharding(tuple(self.partition_spec))

    def can_apply(self, t: torch.Tensor) -> bool:
        """True if the spec has as many entries as `t` has dims."""
        return len(t.shape) == len(self.partition_spec)

    def apply(self, t: torch.Tensor) -> None:
        """mark_sharding() of `t`. RuntimeError for a minibatch that the devices cannot share out."""
        devices = runtime.addressable_runtime_device_count()
        if self.minibatch and t.shape[0] % devices:
            raise RuntimeError(
                "When minibatch is configured, the per-host batch size must be divisible by local runtime device "
                f"count. Per host input data shape {list(t.shape)}, devices {devices}"
            )
        if self.minibatch:
            sharding = _sharding_of(t, self.mesh, self.partition_spec)
            set_sharding(_effects.spread_minibatch(t, self.mesh, self.partition_spec), sharding)
        else:
            mark_sharding(t, self.mesh, self.partition_spec)


# ---- Programs of one device each ----
def _mesh_or_global(mesh: Mesh | None, what: str) -> Mesh:
    mesh = mesh or get_global_mesh()
    if mesh is None:
        raise ValueError(f"{what} wants mesh=, or set_global_mesh() before")
    return mesh


def enable_manual_sharding(
    t: torch.Tensor, partition_spec: PartitionSpec, *, mesh: Mesh | None = None
) -> XLAShardedTensor:
    """This device's part of the tensor: over a mesh of one device, all of it. The gradient passes.

    On a plugin's devices what is computed from it is another value on each device, up to disable_manual_sharding().

    Raises NotImplementedError for several devices of the embedded engine in one process, ValueError without a mesh and
    for a dim that the axes do not divide.
    """
    mesh = _mesh_or_global(mesh, "enable_manual_sharding")
    sharding = _sharding_of(t, mesh, partition_spec)
    if mesh.size() == 1:
        return mark_sharding(t, mesh, partition_spec)
    _check_parts(t.shape, sharding)
    return _effects.take_part(t, mesh, partition_spec)


def _mark_manual_sharding(t: torch.Tensor) -> XLAShardedTensor:
    """For programs that use the original's library: says that `t` is a part of its own on each device."""
    set_manual(t)
    return wrap_as_sharded_tensor(t)


def _check_parts(shape, sharding: OpSharding) -> None:
    if any(size % tiles for size, tiles in zip(shape, sharding.tiles)):
        raise ValueError(f"shape {list(shape)} cannot be cut into {list(sharding.tiles)} equal parts")


def disable_manual_sharding(
    t: torch.Tensor, partition_spec: PartitionSpec, full_shape: torch.Size, *, mesh: Mesh | None = None
) -> XLAShardedTensor:
    """The tensor of shape full_shape with this device's part `t`: over a mesh of one device, `t`. Errors as
    enable_manual_sharding(), also ValueError for a part of another shape.
    """
    mesh = _mesh_or_global(mesh, "disable_manual_sharding")
    sharding = _sharding_of(t, mesh, partition_spec)
    _check_parts(full_shape, sharding)
    if sharding.tile_shape(full_shape) != list(t.shape):
        raise ValueError(f"full_shape {list(full_shape)} has no part of shape {list(t.shape)} as {sharding}")
    if mesh.size() == 1:
        return mark_sharding(t, mesh, partition_spec)
    return _effects.join_part(t, mesh, partition_spec, full_shape)


# ---- Linear layers ----
# The original computes them by einsum, as its compiler shards products of joined dims badly. Nothing is joined here.
class XLAPatchedLinear:
    """A linear layer as a function: XLAPatchedLinear.apply(input, weight, bias)."""

    apply = staticmethod(torch.nn.functional.linear)


class EinsumLinear(torch.nn.Linear):
    """torch.nn.Linear."""


def xla_patched_nn_linear_forward(m: torch.nn.Linear, input: torch.Tensor) -> torch.Tensor:
    """The layer's result for `input`, of shape [..., in_features]."""
    return torch.nn.functional.linear(input, m.weight, m.bias)


def apply_xla_patch_to_nn_linear(module: torch.nn.Module, patched_function=None) -> torch.nn.Module:
    """Returns the module unchanged: its linear layers need no patch."""
    return module


def apply_backward_optimization_barrier(m: torch.nn.Module) -> torch.nn.Module:
    """In each backward of the module, puts its gradients behind a barrier: of its parameters and of its inputs.

    So a compiler does not merge the backward of this module with those before and after it. Returns the module.
    """

    def keep_apart(module: torch.nn.Module, grad_input: tuple, _grad_output: tuple) -> None:
        of_parameters = [parameter.grad for parameter in module.parameters()]
        xla_model.optimization_barrier_([grad for grad in (*of_parameters, *grad_input) if grad is not None])

    m.register_full_backward_hook(keep_apart)
    return m
