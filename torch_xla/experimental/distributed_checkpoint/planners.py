"""Plans what is written and read of each tensor."""

from collections import Counter
from typing import Any

import torch
from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner, LoadPlan
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import ReadItem

from ._helpers import separate, Shards


class SPMDSavePlanner(DefaultSavePlanner):
    """For torch.distributed.checkpoint.save() of tensors that torch_xla.distributed.spmd has marked.

    A tensor that is cut into shards is written shard by shard. Checkpoints of meshes, of DTensors and of plain tensors
    can be read as each other.

    Attributes:
        sharded_state_dict, unsharded_state_dict: the values that are written so, and the others, by their names.
    """

    sharded_state_dict: dict[str, torch.Tensor]
    unsharded_state_dict: dict[str, Any]

    def set_up_planner(self, state_dict: dict, is_coordinator: bool = False, storage_meta=None) -> None:
        """As DefaultSavePlanner's, with its arguments in the original's order. PyTorch names them."""
        super().set_up_planner(state_dict, storage_meta, is_coordinator)
        self.state_dict, self.sharded_state_dict, self.unsharded_state_dict = separate(self.state_dict)

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The value, or a shard of it."""
        value = self.state_dict[index.fqn]
        return value.find_shard(index) if isinstance(value, Shards) else super().lookup_object(index)


class SPMDLoadPlanner(DefaultLoadPlanner):
    """For torch.distributed.checkpoint.load() into such tensors, in place. Their marks stay.

    A tensor that is cut into shards is read shard by shard, and gets its new value when all have been read.

    Attributes:
        sharded_state_dict, unsharded_state_dict: the values that are read so, and the others, by their names.
    """

    sharded_state_dict: dict[str, torch.Tensor]
    unsharded_state_dict: dict[str, Any]

    def set_up_planner(self, state_dict: dict, metadata=None, is_coordinator: bool = False) -> None:
        """As DefaultLoadPlanner's."""
        super().set_up_planner(state_dict, metadata, is_coordinator)
        self.state_dict, self.sharded_state_dict, self.unsharded_state_dict = separate(self.state_dict)

    def create_local_plan(self) -> LoadPlan:
        """As DefaultLoadPlanner's."""
        plan = super().create_local_plan()
        self._unread = Counter(item.dest_index.fqn for item in plan.items)
        return plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """As DefaultLoadPlanner's: the plan itself."""
        return super().finish_plan(central_plan)

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        """The tensor to read into, or memory for a shard of it."""
        value = self.state_dict[index.fqn]
        return value.prepare_shard(index) if isinstance(value, Shards) else super().lookup_tensor(index)

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """Notes that the item has been read."""
        name = read_item.dest_index.fqn
        self._unread[name] -= 1
        if self._unread[name] == 0 and isinstance(value := self.state_dict[name], Shards):
            value.write_back()
