"""Tensors spread over devices: their marks and their shards."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType

import numpy as np
import torch

from ... import _XLAC
from ..._storages import StorageDictionary
from ._dtensor_face import DTensorFace
from .op_sharding import OpSharding, ShardingType

# ---- Which tensors are marked ----
_marks = StorageDictionary()  # by the view (sizes, strides, offset), so detach() keeps them: OpSharding; None: cleared


def _view_of(t: torch.Tensor) -> tuple:
    return t.shape, t.stride(), t.storage_offset()


def note_mark(t: torch.Tensor, sharding: OpSharding | None) -> None:
    """Keeps the mark, and changes nothing on the device. None: cleared."""
    of_storage = _marks.get(t)
    if of_storage is None:
        _marks.set(t, of_storage := {})
    of_storage[_view_of(t)] = sharding


def _is_cut_by_plugin(t: torch.Tensor) -> bool:
    return t.device.type == "xla" and _XLAC._num_partitions() > 1


def set_sharding(t: torch.Tensor, sharding: OpSharding) -> None:
    """Marks the tensor, and all tensors over the same part of its storage. Other parts keep their marks.

    On a plugin with several devices the content is cut over them.
    """
    if _is_cut_by_plugin(t):
        tiles = (1,) * t.dim() if sharding.type is ShardingType.REPLICATED else sharding.tiles
        _XLAC._mark_sharding(t, tiles, sharding.devices)
    note_mark(t, sharding)


def find_mark(t: torch.Tensor) -> OpSharding | None:
    """The tensor's mark. None without one."""
    return (_marks.get(t) or {}).get(_view_of(t))


def find_sharding(t: torch.Tensor) -> OpSharding | None:
    """The tensor's sharding: its own over processes, its mark, or the choice of a plugin's compiler.

    None without one, and once the mark is cleared.
    """
    if isinstance(t, XLAShardedTensor) and (own := t._own_sharding()):
        return own
    of_storage = _marks.get(t) or {}
    if (view := _view_of(t)) in of_storage:
        return of_storage[view]
    found = _XLAC._find_sharding(t) if _is_cut_by_plugin(t) else None
    return found and OpSharding(np.array(found[1]).reshape(*found[0], -1))


def sharding_spec(t: torch.Tensor) -> str:
    """The tensor's sharding, in XLA's words. Empty without one."""
    return str(find_sharding(t) or "")


def _type_of(t: torch.Tensor) -> ShardingType | None:
    sharding = find_sharding(t)
    return None if sharding is None else sharding.type


def remove_sharding(t: torch.Tensor) -> None:
    """Removes the mark, if there is one."""
    if find_sharding(t):
        note_mark(t, None)
        if _is_cut_by_plugin(t):
            _XLAC._clear_sharding_mark(t)


# ---- Shards ----
@dataclass
class XLAShard:
    """One device's part of a tensor, at the time of the call.

    Attributes:
        data: a copy on the CPU, padded with zeros if the tensor's sizes are no multiple of the tiles'.
        indices: a slice for each dim of the tensor; `...` if it is not cut.
        shard_device: the device, as "CPU:1".
        replica_id: its number among the devices with the same part.
    """

    data: torch.Tensor
    indices: list[slice] | EllipsisType
    shard_device: str
    replica_id: int

    def _part(self):
        return ... if self.indices is ... else tuple(slice(0, part.stop - part.start) for part in self.indices)

    @property
    def unpadded_data(self) -> torch.Tensor:
        """`data` without its padding."""
        return self.data[self._part()]

    @unpadded_data.setter
    def unpadded_data(self, t: torch.Tensor) -> None:
        self.data[self._part()] = t


class XLAShardedTensor(DTensorFace, torch.Tensor):
    """The marked tensor itself, with methods for its shards. Results computed from it are XLAShardedTensors as well.

    detach(), clone() and copies keep the mark. torch_xla.distributed.spmd.mark_sharding() makes them.
    """

    def __new__(cls, elem: torch.Tensor, mesh_shape=None, partition_spec=None, *, requires_grad: bool = False):
        """The tensor `elem` as an XLAShardedTensor; with requires_grad a leaf over the same memory."""
        t = torch.Tensor._make_subclass(cls, elem.detach(), True) if requires_grad else elem
        return wrap_as_sharded_tensor(t, mesh_shape, partition_spec)

    def _own_sharding(self) -> OpSharding | None:
        """The sharding that the tensor has without a mark."""
        return None

    def _join(self) -> torch.Tensor:
        """Makes the tensor whole, in place, if its parts are on several processes. Returns it."""
        return self.as_subclass(torch.Tensor)

    def _spread_alike(self, t: torch.Tensor) -> None:
        """Spreads another tensor as this one, in place, if the parts of this one are on several processes."""

    def detach(self) -> "XLAShardedTensor":
        """As torch.Tensor.detach(); the mark belongs to the memory, so it stays."""
        return self.global_tensor.detach().as_subclass(XLAShardedTensor)

    def clone(self, *, memory_format=torch.preserve_format) -> "XLAShardedTensor":
        """As torch.Tensor.clone(), with the mark."""
        return self._with_mark(self.global_tensor.clone(memory_format=memory_format))

    def __deepcopy__(self, memo: dict) -> "XLAShardedTensor":
        if id(self) not in memo:
            memo[id(self)] = self._with_mark(copy.deepcopy(self.global_tensor, memo))
        return memo[id(self)]

    def _with_mark(self, t: torch.Tensor) -> "XLAShardedTensor":
        if sharding := find_sharding(self):
            set_sharding(t, sharding)
        return wrap_as_sharded_tensor(t, self.mesh_shape, self.partition_spec)

    def __repr__(self) -> str:  # pylint: disable=signature-differs
        return f"XLAShardedTensor({self.global_tensor!r}, sharding={self.sharding_spec!r})"

    @property
    def global_tensor(self) -> torch.Tensor:
        """The tensor as a plain one."""
        return self.as_subclass(torch.Tensor)

    @property
    def sharding_spec(self) -> str:
        """Its sharding, in XLA's words; empty once the mark is removed."""
        return sharding_spec(self)

    @property
    def sharding_type(self) -> ShardingType | None:
        """REPLICATED, TILED or PARTIAL. None once the mark is removed."""
        return _type_of(self)

    @property
    def local_shards(self) -> list[XLAShard] | None:
        """The devices' parts, by device number. None once the mark is removed. Runs pending operations."""
        sharding = find_sharding(self)
        if sharding is None:
            return None
        whole = self.global_tensor.detach().cpu()
        hardware = _XLAC._xla_hardware()
        return [
            XLAShard(_cut(whole, place.indices, sharding), place.indices, f"{hardware}:{device}", place.replica_id)
            for device, place in enumerate(sharding.places(whole.shape))
        ]

    def load_local_shards_(self, shards: Sequence[XLAShard]) -> None:
        """Writes the shards of all devices into the tensor, in place.

        Raises RuntimeError for a tensor that is not cut, for another number of shards and for shards of other sizes.
        """
        sharding = find_sharding(self)
        if sharding is None or sharding.type is ShardingType.REPLICATED:
            raise RuntimeError("load_local_shards_() wants a tensor that is cut into shards; this one is replicated")
        if len(shards) != sharding.device_count():
            raise RuntimeError(f"there are {len(shards)} shards for {sharding.device_count()} devices")
        with torch.no_grad():
            self.copy_(join_shards([shard.data for shard in shards], sharding, self.shape))


def wrap_as_sharded_tensor(t: torch.Tensor, mesh_shape=None, partition_spec=None) -> XLAShardedTensor:
    """The tensor as an XLAShardedTensor. Its mark gives its sharding; the others are for its `placements` alone."""
    sharded = t if isinstance(t, XLAShardedTensor) else t.as_subclass(XLAShardedTensor)
    if mesh_shape is not None and partition_spec is not None:
        sharded.set_partition(mesh_shape, partition_spec)
    return sharded


def _cut(whole: torch.Tensor, indices, sharding: OpSharding) -> torch.Tensor:
    if indices is ...:
        return whole.clone()
    part = whole[tuple(indices)]
    full = part.new_zeros(sharding.tile_shape(whole.shape))
    full[tuple(slice(0, size) for size in part.shape)] = part
    return full


def join_shards(shards: Sequence[torch.Tensor], sharding: OpSharding, shape: Sequence[int]) -> torch.Tensor:
    """The tensor of these sizes, joined from the devices' shards.

    Raises RuntimeError for shards of other sizes than a tile's.
    """
    expected = list(shape) if sharding.type is ShardingType.REPLICATED else sharding.tile_shape(shape)
    whole = shards[0].new_zeros(tuple(shape))
    for shard, place in zip(shards, sharding.places(shape)):
        if list(shard.shape) != expected:
            raise RuntimeError(f"a shard of shape {list(shard.shape)} does not fit: {expected} is wanted")
        if place.indices is ...:
            return shard.clone()
        whole[tuple(place.indices)] = shard[tuple(slice(0, part.stop - part.start) for part in place.indices)]
    return whole


def global_tensor_from_cpu_shards(
    shards: Sequence[torch.Tensor], sharding: OpSharding, global_shape: Sequence[int] | None = None
) -> torch.Tensor:
    """A marked tensor on the device, joined from one tensor of the CPU for each device.

    Args:
        shards: one for each device, by their numbers.
        global_shape: without it the shards have no padding.

    Raises RuntimeError for another number of shards, and for shapes that do not fit.
    """
    if len(shards) != sharding.device_count():
        raise RuntimeError(f"there are {len(shards)} shards for {sharding.device_count()} devices")
    tiles = [1] * shards[0].dim() if sharding.type is ShardingType.REPLICATED else sharding.tiles
    shape = list(global_shape or [size * count for size, count in zip(shards[0].shape, tiles)])
    if len(shape) != len(tiles):
        raise RuntimeError(f"global_shape {shape} has not as many dims as the sharding, {len(tiles)}")
    whole = join_shards(shards, sharding, shape).to("xla")
    set_sharding(whole, sharding)
    return whole


# Names for programs that use the original's library
_XLAC._get_xla_sharding_spec = sharding_spec
_XLAC._get_xla_sharding_specs = lambda tensors: [sharding_spec(t) for t in tensors]
_XLAC._get_xla_op_sharding = find_sharding
_XLAC._get_xla_sharding_type = _type_of
_XLAC._global_tensor_from_cpu_shards = global_tensor_from_cpu_shards
