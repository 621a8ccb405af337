"""What an XLAShardedTensor has in common with a DTensor: spec and placements; xla_sharding.py adds redistribute()."""

from collections.abc import Sequence

import torch

from .op_sharding import PartitionSpec


def spec_of_placements(placements: Sequence, rank: int) -> PartitionSpec:
    """The axes of the mesh, by their numbers, for each dim of a tensor of that rank.

    Args:
        placements: a Shard or Replicate for each axis; several for one dim cut it over these axes in turn. A negative
            dim counts from the last one.

    Raises ValueError for another placement, IndexError for a dim that does not exist.
    """
    axes: list[list[int]] = [[] for _ in range(rank)]
    for axis, placement in enumerate(placements):
        if placement.is_shard():
            if not -rank <= placement.dim < rank:
                raise IndexError(f"{placement} of a tensor of {rank} dims")
            axes[placement.dim].append(axis)
        elif not placement.is_replicate():
            raise ValueError(f"placement {placement} is none of Shard and Replicate")
    return tuple(None if not of_dim else of_dim[0] if len(of_dim) == 1 else tuple(of_dim) for of_dim in axes)


class DTensorFace:
    """Of a tensor that knows its mesh and partition_spec: mark_sharding() and distribute_tensor() give such ones."""

    mesh_shape: tuple[int, ...] | None = None
    partition_spec: PartitionSpec | None = None  # axes by their numbers
    _cached_spec = None

    def set_partition(self, mesh_shape: Sequence[int], partition_spec: PartitionSpec) -> None:
        """Sets the two, and nothing on the device."""
        self.mesh_shape, self.partition_spec = tuple(mesh_shape), tuple(partition_spec)
        self.invalidate_spec_cache()

    @property
    def _spec(self):
        """The DTensorSpec. Raises ValueError for a tensor that does not know its mesh."""
        if self._cached_spec is None:
            self._cached_spec = self._make_spec()
        return self._cached_spec

    def _make_spec(self):
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor import Replicate, Shard
        from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

        if self.mesh_shape is None or self.partition_spec is None:
            raise ValueError("the tensor does not know its mesh: take placements from what mark_sharding() returns")
        dim_of = {}
        for dim, entry in enumerate(self.partition_spec):
            for axis in entry if isinstance(entry, tuple) else () if entry is None else (entry,):
                dim_of[axis] = dim
        count = torch.Size(self.mesh_shape).numel()
        return DTensorSpec(
            DeviceMesh("xla", torch.arange(count).reshape(self.mesh_shape)),
            tuple(Shard(dim_of[axis]) if axis in dim_of else Replicate() for axis in range(len(self.mesh_shape))),
            TensorMeta(self.shape, self.stride(), self.dtype),
        )

    @property
    def placements(self) -> tuple:
        """A Shard or Replicate for each axis of the mesh. Raises ValueError for a tensor that does not know it."""
        return self._spec.placements

    def invalidate_spec_cache(self) -> None:
        """Forgets the spec that is kept."""
        self._cached_spec = None
