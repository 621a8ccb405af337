"""The members of a collective or a meeting."""

import itertools
from collections.abc import Iterable

import torch

from .. import _world


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


def members_of(value, groups: Iterable | None) -> Members:
    """The members of the collective of this tensor, or of the tensors in this list."""
    tensors = [value] if isinstance(value, torch.Tensor) else value
    members = Members(_world.of(tensors[0]) if tensors else _world.current(), groups)
    for tensor in tensors if len(members) > 1 else ():
        if tensor.device.type != "xla":
            raise ValueError(f"collectives are operations of the device xla, and a tensor is on {tensor.device}")
    return members
