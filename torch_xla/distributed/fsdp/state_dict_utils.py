"""Joins the parts that the replicas of an FSDP model saved."""

import collections
import glob
import os

import torch
from torch.distributed.tensor import DTensor, Shard

from ..._files import torch_save

WRAPPED = "_fsdp_wrapped_module"  # where FSDP keeps the module, as in the original


def without_wrappers(name: str) -> str:
    """The name of a parameter, buffer or module in the unwrapped model."""
    return ".".join(part for part in name.split(".") if part != WRAPPED)


def _join(name: str, parts: list) -> torch.Tensor:
    for part in parts:
        if not isinstance(part, DTensor) or part.placements != (Shard(0),):
            found = f"a DTensor placed {part.placements}" if isinstance(part, DTensor) else f"a {type(part).__name__}"
            raise ValueError(
                f"{name} is {found} when it should be a DTensor in parts along dim 0, as FSDP here saves it"
            )
    whole = torch.cat([part.to_local() for part in parts])
    if whole.shape != parts[0].shape:
        raise ValueError(f"the parts of {name} make {list(whole.shape)} when they should make {list(parts[0].shape)}")
    return whole


def consolidate_sharded_state_dicts(state_dict_list: list[dict], shard_metadata: dict) -> dict[str, torch.Tensor]:
    """Joins the state dicts of all replicas. No process group is needed.

    Args:
        state_dict_list: model.state_dict() of each replica, in their order.
        shard_metadata: model.get_shard_metadata() of any of them.

    Returns an OrderedDict for the unwrapped module. Buffers are the first replica's, in their own dtype. Raises
    ValueError if parts are missing, or are not of this class.
    """
    if len(state_dict_list) != shard_metadata["world_size"]:
        raise ValueError(f"got {len(state_dict_list)} state dicts of {shard_metadata['world_size']} replicas")
    sharded = {
        f"{module}.{name}" if module else name for module, info in shard_metadata["shard_info"].items() for name in info
    }
    buffers = shard_metadata["buffer_info"]
    whole: dict[str, torch.Tensor] = collections.OrderedDict()
    with torch.no_grad():
        for name, value in state_dict_list[0].items():
            if name in sharded:
                value = _join(name, [state_dict[name] for state_dict in state_dict_list])
            elif name in buffers:
                value = value.to(buffers[name]["_orig_dtype"])
            whole[without_wrappers(name)] = value
    return whole


def _read_part(path: str) -> dict:
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(checkpoint, dict) or not {"model", "shard_metadata"} <= checkpoint.keys():
        raise ValueError(f'{path} is no part of a model: it should be a dict with "model" and "shard_metadata"')
    return checkpoint


def consolidate_sharded_model_checkpoints(
    ckpt_prefix: str, ckpt_suffix: str = "*.pth", save_path: str = "", save_model: bool = True
) -> tuple[dict[str, torch.Tensor], str | None]:
    """Joins the files of all replicas with the paths `ckpt_prefix` + `ckpt_suffix` (a glob pattern).

    Each file is a dict with model.state_dict() under "model" and model.get_shard_metadata() under "shard_metadata".

    Args:
        save_path: of a file with the joined state dict under "model"; by default `ckpt_prefix` + "_consolidated.pth".
        save_model: False writes no file.

    Returns the joined state dict and the path of the file (None without one). Raises FileNotFoundError if no file
    matches, ValueError if they are not one of each replica. Earlier joined files do not count as parts. The files are
    read with weights_only, so they may come from anybody.
    """
    pattern = ckpt_prefix + ckpt_suffix
    default = ckpt_prefix + "_consolidated.pth"
    joined = save_path or default
    not_parts = {os.path.abspath(path) for path in (joined, default)}  # the pattern may match an earlier joined file
    paths = [path for path in sorted(glob.glob(pattern)) if os.path.abspath(path) not in not_parts]
    if not paths:
        raise FileNotFoundError(f"no file matches {pattern}")
    checkpoints = [_read_part(path) for path in paths]
    checkpoints.sort(key=lambda checkpoint: checkpoint["shard_metadata"]["rank"])
    metadata = checkpoints[0]["shard_metadata"]
    ranks = [checkpoint["shard_metadata"]["rank"] for checkpoint in checkpoints]
    if ranks != list(range(metadata["world_size"])):
        raise ValueError(
            f"{pattern} matches files of the replicas {ranks} when it should match one of each of "
            f"{metadata['world_size']}: {', '.join(paths)}"
        )
    state = consolidate_sharded_state_dicts([checkpoint["model"] for checkpoint in checkpoints], metadata)
    if not save_model:
        return state, None
    torch_save({"model": state}, joined)
    return state, joined
