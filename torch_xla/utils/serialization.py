"""Saving with one file per tensor, so that a large state is never in memory twice."""

import os
import shutil

import torch

from ..core import xla_model as xm
from .utils import for_each_instance_rewrite


class TensorReference:
    """Stands for the tensor in file number `tid`."""

    def __init__(self, tid: int):
        self.tid = tid


def _folder(path: str) -> str:
    return f"{path}.tensors"


def _file(path: str, tid: int) -> str:
    return os.path.join(_folder(path), f"tensor_{tid}.pt")


def save(data, path: str, master_only: bool = True, global_master: bool = False) -> None:
    """Writes the nested `data` to `path` and its tensors to files in `<path>.tensors`.

    Args:
        master_only: only the master process writes.
        global_master: the master of the whole run, not of each machine.
    """
    if master_only and not xm.is_master_ordinal(local=not global_master):
        return
    shutil.rmtree(_folder(path), ignore_errors=True)
    os.makedirs(_folder(path))
    count = 0

    def write(tensor: torch.Tensor) -> TensorReference:
        nonlocal count
        torch.save(tensor.cpu(), _file(path, count))
        count += 1
        return TensorReference(count - 1)

    torch.save(for_each_instance_rewrite(data, lambda value: type(value) is torch.Tensor, write), path)


def load(path: str):
    """Reads what save() wrote; the tensors are on the CPU."""
    with torch.serialization.safe_globals([TensorReference]):
        data = torch.load(path, weights_only=True)
    return for_each_instance_rewrite(
        data, lambda value: isinstance(value, TensorReference), lambda ref: torch.load(_file(path, ref.tid))
    )
