"""Manual sharding over a plugin's devices: what each device computes on its own shards."""

from collections.abc import Callable, Sequence

import torch

from ... import _XLAC
from ...core._device_groups import DeviceGroups
from .op_sharding import OpSharding, ShardingType
from .xla_sharded_tensor import find_mark, find_sharding, note_mark, set_sharding


# ---- Shards and whole tensors ----
def require_partitions() -> None:
    """Raises NotImplementedError unless programs have a partition on each device of a plugin."""
    if _XLAC._num_partitions() == 1:
        raise NotImplementedError(
            "a program that says what each device of a mesh does wants the devices of a plugin, or several processes: "
            "the devices of the embedded engine share one memory"
        )


def set_manual(t: torch.Tensor) -> torch.Tensor:
    """Notes that the tensor is a part of its own on each device. Returns it."""
    note_mark(t, OpSharding.manual(range(_XLAC._num_partitions()), t.dim()))
    return t


def _take(t: torch.Tensor, sharding: OpSharding) -> torch.Tensor:
    require_partitions()
    shard = _XLAC._take_shard(t, sharding.tiles, sharding.devices)
    return set_manual(shard)


def _join(shard: torch.Tensor, sharding: OpSharding) -> torch.Tensor:
    require_partitions()
    whole = _XLAC._join_shards(shard, sharding.tiles, sharding.devices)
    set_sharding(whole, sharding)
    return whole


class _Move(torch.autograd.Function):
    """move(t, sharding), whose gradient is back(gradient, sharding)."""

    @staticmethod
    def forward(ctx, t: torch.Tensor, sharding: OpSharding, move: Callable, back: Callable) -> torch.Tensor:
        ctx.sharding, ctx.back = sharding, back
        return move(t, sharding)

    @staticmethod
    def backward(ctx, grad_output: torch.Tensor) -> tuple:
        return ctx.back(grad_output, ctx.sharding), None, None, None


def take_shard(t: torch.Tensor, sharding: OpSharding) -> torch.Tensor:
    """Each device's shard of the tensor. The gradient passes."""
    return _Move.apply(t, sharding, _take, _join)


def join_shards(t: torch.Tensor, sharding: OpSharding) -> torch.Tensor:
    """The tensor of the devices' shards. The gradient passes."""
    return _Move.apply(t, sharding, _join, _take)


# ---- Collectives between them ----
def _groups(groups: Sequence[Sequence[int]]) -> DeviceGroups:
    require_partitions()
    return DeviceGroups(groups)


def _scaled(t: torch.Tensor, scale: float) -> torch.Tensor:
    return set_manual(t if scale == 1.0 else t * scale)


def all_reduce(kind: str, t: torch.Tensor, scale: float, groups: Sequence[Sequence[int]]) -> torch.Tensor:
    """The shards of each group's devices, combined and scaled. `kind`: as of xm.all_reduce()."""
    return _scaled(_groups(groups).reduce(t, kind), scale)


def reduce_scatter(
    kind: str, t: torch.Tensor, scale: float, dim: int, shard_count: int, groups: Sequence[Sequence[int]]
) -> torch.Tensor:
    """As all_reduce(); then each device has its part of dim `dim`. ValueError for groups of other sizes."""
    if any(len(group) != shard_count for group in groups):
        raise ValueError(f"groups {[list(group) for group in groups]} are not all of shard_count {shard_count} devices")
    return _scaled(_groups(groups).scatter(t, kind, dim), scale)


# ---- Names for programs that use the original's library ----
def _full_to_shard_shape(t: torch.Tensor) -> torch.Tensor:
    if (sharding := find_sharding(t)) is None:
        raise RuntimeError("a tensor without a sharding has no shards: call mark_sharding() before")
    return _take(t, sharding)


def _shard_to_full_shape(shard: torch.Tensor, sharding: OpSharding, shape, dtype) -> torch.Tensor:
    mark = find_mark(shard)
    if mark is None or mark.type is not ShardingType.MANUAL:
        raise RuntimeError(f"only shards become a whole tensor, and this one is sharded as {mark}")
    return _join(shard, sharding)


_XLAC._xla_spmd_all_reduce = all_reduce
_XLAC._xla_spmd_reduce_scatter = reduce_scatter
_XLAC._spmd_full_to_shard_shape = _full_to_shard_shape
_XLAC._spmd_shard_to_full_shape = _shard_to_full_shape
