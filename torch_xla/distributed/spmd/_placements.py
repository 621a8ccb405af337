"""Meshes and specs as torch.distributed.tensor has them: a DeviceMesh of the run's processes, placements, DTensors."""

import functools
import logging
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from ... import _world, _XLAC
from ..._device_mesh import mesh_of_processes
from .mesh import Mesh
from .op_sharding import OpSharding, PartitionSpec

Placements = tuple[Placement, ...]


# ---- From marks ----
def device_mesh(mesh: Mesh) -> DeviceMesh:
    """The mesh without its axes of size 1. The first call for a grid meets the other processes."""
    return _make_mesh(tuple(size for size in mesh.mesh_shape if size > 1), tuple(mesh.device_ids.tolist()))


@functools.cache
def _make_mesh(shape: tuple[int, ...], ranks: tuple[int, ...]) -> DeviceMesh:
    made = mesh_of_processes(np.array(ranks).reshape(shape))
    _share_random_state()
    # It advises to flatten the mesh. In a flattened mesh parts of uneven dims are others, and values come out wrong.
    logging.getLogger("torch.distributed.tensor._redistribute").addFilter(_is_no_advice)
    return made


def _is_no_advice(record: logging.LogRecord) -> bool:
    return "While redistributing from" not in record.getMessage()


@functools.cache
def _share_random_state() -> None:
    """All processes go on with the random state of the first one: they draw the same numbers from now on."""
    own = ",".join(map(str, _XLAC._xla_get_rng_state()))
    first = _world.process().meet("random state of the mesh", own.encode())[0]
    _XLAC._xla_set_rng_state(*map(int, first.split(b",")))


def placements_of(mesh: Mesh, partition_spec: PartitionSpec) -> Placements:
    """For each axis of device_mesh(mesh) the dim that it cuts. The axes of one dim cut it in the order of the mesh."""
    dim_of = {axis: dim for dim, entry in enumerate(partition_spec) for axis in mesh._axes(entry)}
    axes = [axis for axis, size in enumerate(mesh.mesh_shape) if size > 1]
    return tuple(Shard(dim_of[axis]) if axis in dim_of else Replicate() for axis in axes)


# ---- DTensors. Without gradients: the callers have their own ----
def replicate(whole: torch.Tensor, mesh: DeviceMesh) -> DTensor:
    """The DTensor with this value on each process, over the same memory; it does not hold the tensor `whole`."""
    return DTensor.from_local(whole.data, mesh, [Replicate()] * mesh.ndim, run_check=False)


def distribute(whole: torch.Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    """The DTensor of a value that each process has: each keeps a copy of its part. Sends nothing."""
    return replicate(whole, mesh).redistribute(mesh, without_sums(placements))


def join_parts(part: torch.Tensor, mesh: DeviceMesh, placements: Placements, shape: Sequence[int]) -> DTensor:
    """The DTensor of this shape whose part this process has, over the same memory. Sends nothing."""
    strides = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(part.data, mesh, placements, run_check=False, shape=torch.Size(shape), stride=strides)


def without_sums(placements: Sequence[Placement]) -> Placements:
    """The placements for a value that is no sum over processes."""
    return tuple(Replicate() if placement.is_partial() else placement for placement in placements)


def without_empty_parts(placed: DTensor) -> DTensor:
    """The same value, whole along each dim that leaves a process without elements."""
    sizes, placements = list(placed.shape), list(placed.placements)
    for axis, placement in enumerate(placements):
        if placement.is_shard():
            parts = placed.device_mesh.size(axis)
            part = -(-sizes[placement.dim] // parts)
            is_empty = part * (parts - 1) >= sizes[placement.dim]
            placements[axis] = Replicate() if is_empty else placement
            sizes[placement.dim] = sizes[placement.dim] if is_empty else sizes[placement.dim] - part * (parts - 1)
    return placed if placements == list(placed.placements) else placed.redistribute(placed.device_mesh, placements)


def for_view(placed: DTensor, sizes: Sequence[int]) -> DTensor:
    """The same value, cut by one axis only where several cut a dim and do not divide it, or its first part in the view.

    The rule of torch.distributed.tensor divides these by each axis alone, and gives parts of wrong sizes.
    """
    total, placements = placed.numel(), list(placed.placements)
    sizes = [-total // math.prod(sizes) if size == -1 else size for size in sizes] if total else list(sizes)
    for dim, axes in enumerate(axes_by_dim(placed)):
        before = math.prod(placed.shape[:dim])
        starts = [size for at, size in enumerate(sizes) if size != 1 and math.prod(sizes[:at]) == before]
        parts = math.prod(placed.device_mesh.size(axis) for axis in axes)
        if len(axes) > 1 and any(size % parts for size in (placed.shape[dim], *starts)):
            for axis in axes[1:]:
                placements[axis] = Replicate()
    return placed if placements == list(placed.placements) else placed.redistribute(placed.device_mesh, placements)


def whole_of(placed: DTensor) -> torch.Tensor:
    """The value, on each process. All processes call it."""
    return placed.full_tensor()


# ---- To marks ----
def axes_by_dim(placed: DTensor) -> list[list[int]]:
    """For each dim the axes of the mesh that cut it."""
    axes: list[list[int]] = [[] for _ in range(placed.dim())]
    for axis, placement in enumerate(placed.placements):
        if isinstance(placement, Shard):
            axes[placement.dim].append(axis)
    return axes


def sharding_of(placed: DTensor) -> OpSharding:
    """The sharding in XLA's terms."""
    of_dims, ranks = axes_by_dim(placed), placed.device_mesh.mesh.numpy()
    used = [axis for of_dim in of_dims for axis in of_dim]
    others = [axis for axis in range(ranks.ndim) if axis not in used]
    tiles = [math.prod(ranks.shape[axis] for axis in of_dim) for of_dim in of_dims]
    return OpSharding(ranks.transpose(used + others).reshape(*tiles, -1))


def own_part(placed: DTensor) -> tuple[list[slice], int]:
    """This process's part of each dim, and its number among the processes that hold the same part."""
    mesh = placed.device_mesh
    here = mesh.get_coordinate()
    begins, sizes = [0] * placed.dim(), list(placed.shape)
    replica = 0
    for axis, placement in enumerate(placed.placements):
        if not isinstance(placement, Shard):
            replica = replica * mesh.size(axis) + here[axis]
            continue
        dim, tile = placement.dim, -(-sizes[placement.dim] // mesh.size(axis))
        begin = min(here[axis] * tile, sizes[dim])
        begins[dim], sizes[dim] = begins[dim] + begin, min(tile, sizes[dim] - begin)
    return [slice(begin, begin + size, 1) for begin, size in zip(begins, sizes)], replica
