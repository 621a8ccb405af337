"""Plans what is written and read of each tensor."""

from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner, LoadPlan


class SPMDSavePlanner(DefaultSavePlanner):
    """For torch.distributed.checkpoint.save() of tensors that torch_xla.distributed.spmd has marked.

    All shards of such a tensor lie in one memory, so it is written as one piece, for any mesh; checkpoints of meshes,
    of DTensors and of plain tensors can be read as each other.
    """

    def set_up_planner(self, state_dict: dict, is_coordinator: bool = False, storage_meta=None) -> None:
        """As DefaultSavePlanner's, with its arguments in the original's order. PyTorch names them."""
        super().set_up_planner(state_dict, storage_meta, is_coordinator)


class SPMDLoadPlanner(DefaultLoadPlanner):
    """For torch.distributed.checkpoint.load() into such tensors, in place. Their marks stay."""

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """As DefaultLoadPlanner's: the plan itself."""
        return super().finish_plan(central_plan)
