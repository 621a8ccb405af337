"""Marks over the processes of a run, each with one device of the embedded engine.

A marked tensor becomes a SpreadTensor in place. torch.distributed.tensor is the engine: it decides which process
computes what, and what they send each other.
"""

import math

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ... import _XLAC, runtime
from ._placements import device_mesh, join_parts, Placements, placements_of
from ._spread_calls import watch
from ._spread_tensor import become, place, placed_as, spread_by, SpreadTensor
from .mesh import Mesh
from .op_sharding import PartitionSpec


def check(mesh: Mesh) -> None:
    """Makes the groups of the mesh's processes. All processes call it.

    Raises NotImplementedError for processes with several devices, and for those of a plugin.
    """
    if not _XLAC._xla_shares_memory():
        raise NotImplementedError(
            f"a mesh of {mesh.size()} devices of several processes with a plugin is not there yet; processes of the "
            "embedded engine (PJRT_DEVICE=CPU) can have one"
        )
    if (devices := runtime.addressable_runtime_device_count()) > 1:
        raise NotImplementedError(
            f"a mesh over processes wants one device in each, and this process has CPU_NUM_DEVICES={devices}"
        )
    if runtime.is_spmd():
        device_mesh(mesh)


def spread(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """Spreads the tensor's value, in place. Returns the tensor."""
    t = spread_by(t, device_mesh(mesh), placements_of(mesh, partition_spec))
    watch(t)  # now: a compiled graph does not see the leaf
    return t


def spread_minibatch(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """Takes the tensor as this process's part of a batch, in place; other dims are whole on each process.

    Processes that differ only in axes that do not cut the batch give the same part.
    """
    groups, placements = device_mesh(mesh), placements_of(mesh, partition_spec)
    of_batch = tuple(placement if placement.is_shard(0) else Replicate() for placement in placements)
    parts = math.prod(groups.size(axis) for axis, placement in enumerate(of_batch) if placement.is_shard())
    with torch.no_grad():
        placed = join_parts(t.contiguous(), groups, of_batch, [t.shape[0] * parts, *t.shape[1:]])
        return become(t, SpreadTensor(placed.redistribute(groups, placements)))


# ---- Parts as plain tensors ----
class _TakePart(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t: torch.Tensor, mesh: DeviceMesh, placements: Placements) -> torch.Tensor:
        ctx.mesh, ctx.placements, ctx.shape = mesh, placements, t.shape
        return place(t, mesh, placements).to_local().clone()

    @staticmethod
    def backward(ctx, grad_output: torch.Tensor) -> tuple:
        return SpreadTensor(join_parts(grad_output.contiguous(), ctx.mesh, ctx.placements, ctx.shape)), None, None


class _JoinPart(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t: torch.Tensor, mesh: DeviceMesh, placements: Placements, shape) -> torch.Tensor:
        ctx.mesh, ctx.placements = mesh, placements
        return SpreadTensor(join_parts(t.contiguous(), mesh, placements, shape))

    @staticmethod
    def backward(ctx, grad_output: torch.Tensor) -> tuple:
        return place(grad_output, ctx.mesh, ctx.placements).to_local(), None, None, None


def take_part(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """This process's part of the tensor, a plain one."""
    watch(t)
    return _TakePart.apply(t, device_mesh(mesh), placements_of(mesh, partition_spec))


def join_part(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec, full_shape) -> torch.Tensor:
    """The tensor of shape full_shape whose part this process has."""
    return _JoinPart.apply(t, device_mesh(mesh), placements_of(mesh, partition_spec), tuple(full_shape))


def _place_states(optimizer: torch.optim.Optimizer, args, kwargs) -> None:
    """Places states of an optimizer as their parameters: those that are older than the marks, or were loaded."""
    for parameter, states in optimizer.state.items():
        if not isinstance(parameter, SpreadTensor) or not isinstance(states, dict):
            continue
        for name, state in states.items():
            is_like = isinstance(state, torch.Tensor) and state.shape == parameter.shape and state.dim() > 0
            if is_like and not isinstance(state, SpreadTensor):
                with torch.no_grad():
                    states[name] = placed_as(parameter, state)


register_optimizer_step_pre_hook(_place_states)
