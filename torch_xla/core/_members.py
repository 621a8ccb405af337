"""The members of a collective or a meeting."""

import itertools
from collections.abc import Iterable, Sequence

import torch

from .. import _world, _XLAC
from ._device_groups import check_devices, DeviceGroups, num_partitions


def check_replica(ordinal: int, size: int) -> None:
    """Raises ValueError for a number that no replica has."""
    if not 0 <= ordinal < size:
        raise ValueError(f"replica {ordinal} does not exist: the run has {size}, numbered from 0")


class Members:
    """The replicas in a collective: the group of `groups` with this replica."""

    def __init__(self, replica: _world.Replica, groups: Iterable | None):
        self._replica = replica
        self.ranks = list(range(replica.size))
        for ordinal in itertools.chain.from_iterable(groups or ()):
            check_replica(ordinal, replica.size)
        if groups:
            self.ranks = next((list(group) for group in groups if replica.rank in group), [])
            if not self.ranks:
                raise ValueError(f"replica {replica.rank} is in none of the groups {[list(g) for g in groups]}")

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def name(self) -> str:
        """The group's name for torch.ops.xla."""
        return self._replica.group(self.ranks)

    def reduce(self, t: torch.Tensor, reduction: str) -> torch.Tensor:
        """The replicas' tensors, combined. No gradient."""
        return torch.ops.xla.all_reduce(t, reduction, self.name)

    def gather(self, t: torch.Tensor, dim: int) -> torch.Tensor:
        """The replicas' tensors, joined along the dim. No gradient."""
        if dim in (0, -t.dim()):
            return torch.ops.xla.all_gather(t, len(self), self.name)
        stacked = torch.ops.xla.all_gather(t.unsqueeze(0), len(self), self.name)
        return torch.cat(stacked.unbind(0), dim)

    def gradient_of_gather(self, grad: torch.Tensor, dim: int) -> torch.Tensor:
        """This replica's part."""
        size = grad.size(dim) // len(self)
        return grad.narrow(dim, size * self.ranks.index(self._replica.rank), size).clone()

    def scatter(self, t: torch.Tensor, reduction: str, dim: int) -> torch.Tensor:
        """The replicas' tensors, combined, and of that this replica's part along the dim."""
        part = torch.ops.xla.reduce_scatter(t.movedim(dim, 0), reduction, len(self), self.name)
        return part.movedim(0, dim).contiguous()

    def exchange(self, t: torch.Tensor, split: int, concat: int) -> torch.Tensor:
        """This replica's part along dim `split` of each replica's tensor, joined along `concat`."""
        parts = torch.stack(t.chunk(len(self), split))
        ones = [1] * len(self)
        return torch.cat(torch.ops.xla.all_to_all(parts, ones, ones, self.name).unbind(0), concat)

    def permute(self, t: torch.Tensor, pairs: list[tuple[int, int]]) -> torch.Tensor:
        """The tensor that a pair sends to this replica, or zeros."""
        return torch.ops.xla.collective_permute(t, list(itertools.chain.from_iterable(pairs)), self.name)

    def broadcast(self, t: torch.Tensor, root: int) -> torch.Tensor:
        """The tensor of the group's replica at this position."""
        return torch.ops.xla.broadcast(t, root, self.name)


def _is_over_devices(tensors: Sequence[torch.Tensor]) -> bool:
    return bool(tensors) and tensors[0].device.type == "xla" and num_partitions() > 1


def check_member(value: torch.Tensor, ordinal: int, members: Members | DeviceGroups) -> None:
    """Raises ValueError for the number of a replica, or of a device of a program over several, that does not exist."""
    if _is_over_devices([value]):
        check_devices([ordinal])
    else:
        check_replica(ordinal, len(members))


def members_of(
    value, groups: Iterable | None, what: str | None = None, is_exchanged: bool = False
) -> Members | DeviceGroups:
    """The members of the collective of this tensor, or of the tensors in this list.

    In a program over several devices of a plugin the members of shards are devices, each with its own shard. A whole
    tensor is the same for all devices: it has one member, and no others with parts to exchange.

    Args:
        what: the collective's name, if it gives a result of parts of several members.
        is_exchanged: `groups` are not given, but the collective names other members.
    """
    tensors = [value] if isinstance(value, torch.Tensor) else value
    if _is_over_devices(tensors):
        of_devices = DeviceGroups(groups)
        if any(_XLAC._is_shard(t) for t in tensors):
            return of_devices
        if what and (is_exchanged or (groups and len(of_devices) > 1)):
            raise RuntimeError(
                f"{what}() got a whole tensor when it should get shards: in a program over {num_partitions()}"
                " devices of a mesh they exchange parts after enable_manual_sharding()"
            )
        groups = None
    members = Members(_world.of(tensors[0]) if tensors else _world.current(), groups)
    for tensor in tensors if len(members) > 1 else ():
        if tensor.device.type != "xla":
            raise ValueError(f"collectives are operations of the device xla, and a tensor is on {tensor.device}")
    return members
