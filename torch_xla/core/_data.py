"""Nested data: moves between the CPU and the device, conversion, search."""

import warnings
from collections.abc import Callable

import torch
from torch.nn.utils.rnn import PackedSequence

from ..utils.utils import DataWrapper, for_each_instance_rewrite


def _maybe_convert_to_cpu(data, convert: bool = True):
    """Copy of `data` (nested lists, tuples, dicts, sets) with its xla tensors on the CPU.

    `convert=False` returns it as it is.
    """
    if not convert:
        return data
    return for_each_instance_rewrite(
        data, lambda value: type(value) is torch.Tensor and value.device.type == "xla", lambda tensor: tensor.cpu()
    )


def send_cpu_data_to_device(datas, device, input_sharding=None):
    """Copy of `datas` (nested lists, tuples, dicts, sets, objects) with its CPU tensors on `device`.

    A lone tensor comes in a list.

    Args:
        input_sharding: a torch_xla.distributed.spmd.ShardingSpec that marks the tensors with as many dims; or a dict of
            specs by the keys of `datas`, which is a dict or a list of dicts.

    Raises ValueError for a dict of specs with other datas, KeyError for a key without a spec, and the spec's errors.
    """
    if isinstance(input_sharding, dict):
        return _send_by_keys(datas, device, input_sharding)

    def move(tensor):
        if tensor is None:  # a part that a DataWrapper lacks
            return None
        moved = tensor.to(device)
        if input_sharding is not None and input_sharding.can_apply(moved):
            input_sharding.apply(moved)
        return moved

    def is_moved(value):
        is_whole = isinstance(value, (DataWrapper, PackedSequence))
        return is_whole or (isinstance(value, torch.Tensor) and value.device.type == "cpu")

    def move_part(value):
        if isinstance(value, DataWrapper):
            return value.from_tensors([move(t) for t in value.get_tensors()])
        if isinstance(value, PackedSequence):  # whose batch sizes stay on the CPU
            return value.to(device)
        return move(value)

    return for_each_instance_rewrite([datas] if isinstance(datas, torch.Tensor) else datas, is_moved, move_part)


def _send_by_keys(datas, device, input_shardings: dict):
    if isinstance(datas, list):
        return [_send_by_keys(part, device, input_shardings) for part in datas]
    if not isinstance(datas, dict):
        raise ValueError(f"input_sharding is a dict, so the data should be one too, and is a {type(datas).__name__}")
    return {key: send_cpu_data_to_device([part], device, input_shardings[key])[0] for key, part in datas.items()}


class ToXlaTensorArena:
    """Moves chosen parts of nested data in one go.

    Args:
        convert_fn: from the list of chosen parts to the list of their replacements.
        select_fn: True for the parts to choose.
    """

    def __init__(self, convert_fn: Callable[[list], list], select_fn: Callable[[object], bool]):
        self._convert = convert_fn
        self._select = select_fn

    def transform(self, inputs):
        """Copy of `inputs` (nested lists, tuples, dicts, sets, objects) with the chosen parts converted.

        `convert_fn` is called once, unless nothing is chosen. Raises ValueError if it returns another number of parts.
        """
        chosen: list = []
        for_each_instance_rewrite(inputs, self._select, lambda value: chosen.append(value) or value)
        converted = self._convert(chosen) if chosen else []
        if len(converted) != len(chosen):
            raise ValueError(f"convert_fn gave {len(converted)} values for {len(chosen)}")
        places = {id(value): new for value, new in zip(chosen, converted, strict=True)}
        return for_each_instance_rewrite(inputs, self._select, lambda value: places[id(value)])


def check_view_sharing(obj) -> None:
    """Warns about tensors in `obj` that share memory: `.to(device)` would make them independent copies."""
    seen: dict[int, torch.Tensor] = {}

    def check(tensor):
        other = seen.setdefault(tensor.untyped_storage()._cdata, tensor)
        if other is not tensor:
            warnings.warn(
                f"two tensors of shapes {list(other.shape)} and {list(tensor.shape)} share memory", stacklevel=3
            )
        return tensor

    for_each_instance_rewrite(obj, lambda value: isinstance(value, torch.Tensor), check)
