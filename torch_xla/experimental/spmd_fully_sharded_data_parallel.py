"""FSDP by sharding, which needs several replicas."""

import torch


class SpmdFullyShardedDataParallel(torch.nn.Module):
    """A module whose parameters are sharded over a mesh. Raises NotImplementedError when it is made."""

    def __init__(self, module: torch.nn.Module, *args, **kwargs):
        raise NotImplementedError("FSDP needs several replicas, and a run has one: use the module itself")
