"""FSDP's class and the joining of its checkpoints, which need several replicas."""

import torch

_MESSAGE = "FSDP needs several replicas, and a run has one: use the module itself"


class XlaFullyShardedDataParallel(torch.nn.Module):
    """A module whose parameters are spread over devices. Raises NotImplementedError when it is made."""

    def __init__(self, module: torch.nn.Module, *args, **kwargs):
        raise NotImplementedError(_MESSAGE)


def consolidate_sharded_state_dicts(state_dict_list: list, shard_metadata_list=None):
    """Joins the parts of a state dict. Raises NotImplementedError."""
    raise NotImplementedError(_MESSAGE)


def consolidate_sharded_model_checkpoints(ckpt_prefix: str, ckpt_suffix: str = "*.pth", save_path: str = "", **kwargs):
    """Joins the files of a sharded checkpoint. Raises NotImplementedError."""
    raise NotImplementedError(_MESSAGE)
