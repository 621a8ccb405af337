"""Tensors cut over devices of this process, as torch.distributed.checkpoint writes and reads them: shard by shard."""

import copy
import threading
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.utils import _pytree as pytree

from ...distributed.spmd.op_sharding import ShardingType
from ...distributed.spmd.xla_sharded_tensor import find_sharding


def _chunks_of(t: torch.Tensor) -> dict[int, ChunkStorageMetadata]:
    """The parts of the tensor, each by the number of one device that holds it."""
    chunks = {}
    for device, place in enumerate(find_sharding(t).places(t.shape)):
        sizes = torch.Size(part.stop - part.start for part in place.indices)
        if place.replica_id == 0 and sizes.numel():
            chunks[device] = ChunkStorageMetadata(torch.Size(part.start for part in place.indices), sizes)
    return chunks


class _CpuShards(torch.Tensor):
    """A copy of a tensor in the CPU's memory that knows the shards into which the tensor is cut."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    chunks: dict[int, ChunkStorageMetadata]


class Shards:
    """A tensor for which _is_sharded_tensor() holds, to be written or read shard by shard.

    The CPU holds the whole tensor from the first shard to the last one.
    """

    def __init__(self, t: torch.Tensor):
        self._t, self._chunks = t, t.chunks if isinstance(t, _CpuShards) else _chunks_of(t)
        self._whole: torch.Tensor | None = None
        self._left = 0  # shards that wait for find_shard()
        self._lock = threading.Lock()  # of both: planners are asked by several threads

    def size(self) -> torch.Size:
        """Sizes of the whole tensor."""
        return self._t.shape

    def __create_write_items__(self, fqn: str, object) -> list[WriteItem]:
        properties = TensorProperties(dtype=self._t.dtype, requires_grad=self._t.requires_grad)
        return [
            WriteItem(
                index=MetadataIndex(fqn, chunk.offsets, device),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk, properties, self._t.shape),
            )
            for device, chunk in self._chunks.items()
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return list(self._chunks.values())

    def _part(self, whole: torch.Tensor, index: MetadataIndex) -> torch.Tensor:
        sizes = next(chunk.sizes for chunk in self._chunks.values() if chunk.offsets == index.offset)
        return whole[tuple(slice(begin, begin + size) for begin, size in zip(index.offset, sizes))]

    def find_shard(self, index: MetadataIndex) -> torch.Tensor:
        """The shard's value, on the CPU. Runs pending operations."""
        with self._lock:
            if self._whole is None:
                self._whole, self._left = self._t.detach().cpu(), len(self._chunks)
            part = self._part(self._whole, index)
            self._left -= 1
            if self._left == 0:
                self._whole = None
        return part

    def prepare_shard(self, index: MetadataIndex) -> torch.Tensor:
        """Memory of the CPU for a shard's new value; write_back() takes it."""
        if self._whole is None:
            self._whole = torch.empty(self._t.shape, dtype=self._t.dtype)
        return self._part(self._whole, index)

    def write_back(self) -> None:
        """Writes the shards into the tensor, in place."""
        with torch.no_grad():
            self._t.copy_(self._whole)
        self._whole = None


def _is_sharded_tensor(x: Any) -> bool:
    """Whether it is a tensor cut over devices of this process, or its _CpuShards."""
    if isinstance(x, _CpuShards):
        return True
    if not isinstance(x, torch.Tensor) or x.device.type != "xla":
        return False
    writes_itself = hasattr(x, "__create_write_items__")  # a DTensor, or spread over processes
    sharding = None if writes_itself else find_sharding(x)
    return sharding is not None and sharding.type in (ShardingType.TILED, ShardingType.PARTIAL)


def _copy(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return copy.deepcopy(x)
    t = x.detach().to("cpu", copy=True)
    if _is_sharded_tensor(x):
        t = t.as_subclass(_CpuShards)
        t.chunks = _chunks_of(x)
    return t


def _sharded_cpu_state_dict(state_dict: dict) -> dict:
    """A copy of the nest in the CPU's memory. Tensors that are cut into shards become _CpuShards."""
    return pytree.tree_map(_copy, state_dict)


def separate(state_dict: dict) -> tuple[dict[str, Any], dict[str, torch.Tensor], dict[str, Any]]:
    """The values with Shards in place of those that are cut into shards; these; the others."""
    sharded = {name: value for name, value in state_dict.items() if _is_sharded_tensor(value)}
    others = {name: value for name, value in state_dict.items() if name not in sharded}
    return {name: Shards(value) if name in sharded else value for name, value in state_dict.items()}, sharded, others
