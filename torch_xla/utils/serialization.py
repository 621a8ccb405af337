"""Saving with one file per tensor, so that a large state is never in memory twice."""

import os
import re

import torch

from .. import _files
from ..core import xla_model as xm
from .utils import for_each_instance_rewrite


class TensorReference:
    """Stands for the tensor in file number `tid`."""

    def __init__(self, tid: int):
        self.tid = tid


def _get_tensors_folder(path: str) -> str:
    """The folder of the tensors of `path`."""
    return f"{path}.tensors"


def _get_tensor_file(path: str, tid: int) -> str:
    """The file of a tensor in such a folder, `path`."""
    return os.path.join(path, f"tensor_{tid}.pt")


def _file(path: str, tid: int) -> str:
    return _get_tensor_file(_get_tensors_folder(path), tid)


def _numbers(path: str) -> set[int]:
    """The numbers of the present tensor files."""
    names = (re.fullmatch(r"tensor_(0|[1-9][0-9]*)\.pt", name) for name in os.listdir(_get_tensors_folder(path)))
    return {int(name[1]) for name in names if name}


def _delete(path: str, numbers: set[int]) -> None:
    for number in numbers:
        os.unlink(_file(path, number))


def _load_references(path: str):
    with torch.serialization.safe_globals([TensorReference]):
        return torch.load(path, weights_only=True)


def _is_reference(value) -> bool:
    return isinstance(value, TensorReference)


def _delete_abandoned(path: str) -> None:
    """Deletes tensor files of an interrupted save."""
    used = []
    if os.path.exists(path):
        try:
            for_each_instance_rewrite(_load_references(path), _is_reference, used.append)
        except Exception:  # none of ours, or with objects that load() refuses: all files may be in use
            return
    _delete(path, _numbers(path) - {reference.tid for reference in used})


def save(data, path: str, master_only: bool = True, global_master: bool = False) -> None:
    """Writes the nested `data` to `path` and its tensors to files in `<path>.tensors`.

    Args:
        master_only: only the master process writes.
        global_master: the master of the whole run, not of each machine.

    An earlier save there loads until this one is complete, as the new tensors have other numbers.
    """
    if master_only and not xm.is_master_ordinal(local=not global_master):
        return
    os.makedirs(_get_tensors_folder(path), exist_ok=True)
    _delete_abandoned(path)
    before, old = _files.identify(path), _numbers(path)
    first, written = max(old, default=-1) + 1, set()

    def write(tensor: torch.Tensor) -> TensorReference:
        number = first + len(written)
        written.add(number)
        with open(_file(path, number), "xb") as file:
            torch.save(tensor.cpu(), file)
            _files.sync_file(file)
        return TensorReference(number)

    try:
        references = for_each_instance_rewrite(data, lambda value: type(value) is torch.Tensor, write)
        _files.sync_folder(_get_tensors_folder(path))
        _files.torch_save(references, path)
    finally:
        is_whole = _files.identify(path) != before
        _delete(path, (old if is_whole else written) & _numbers(path))


def _read(path: str, reference: TensorReference) -> torch.Tensor:
    number = reference.tid
    if type(number) is not int or number < 0:
        raise ValueError(f"{path} refers to the tensor {number!r}, which is no number of a file")
    tensor = torch.load(_file(path, number), weights_only=True)
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{_file(path, number)} has a {type(tensor).__name__} when it should have a tensor")
    return tensor


def load(path: str):
    """Loads a file of save(); the tensors are on the CPU.

    The files may come from anybody: they are read with weights_only. Raises ValueError for a reference that is no
    number of a file, and for a file without a tensor.
    """
    return for_each_instance_rewrite(_load_references(path), _is_reference, lambda reference: _read(path, reference))
