"""What is written and read of each tensor."""

from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner


class SPMDSavePlanner(DefaultSavePlanner):
    """For torch.distributed.checkpoint.save() of tensors that torch_xla.distributed.spmd has marked.

    All shards of such a tensor lie in one memory, so it is written as one piece, whatever its mesh; checkpoints of
    meshes, of DTensors and of plain tensors can be read as each other.
    """


class SPMDLoadPlanner(DefaultLoadPlanner):
    """For torch.distributed.checkpoint.load() into such tensors, in place. Their marks stay."""
