"""Collectives among the devices of a run (part of `xm`). The run has one device: each gives what one replica gets."""

from collections.abc import Callable, Iterable, Sequence

import torch

from .. import runtime as _runtime
from ..utils.utils import for_each_instance_rewrite

REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"
_REDUCTIONS = (REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX)


# ---- Checks ----
def _check_groups(groups: Iterable | None) -> None:
    if groups and [list(group) for group in groups] != [[0]]:
        raise ValueError(f"groups={groups} names replicas that do not exist: the run has one, number 0")


def _check_reduction(reduce_type: str) -> None:
    if reduce_type.lower() not in _REDUCTIONS:
        raise ValueError(f"reduction {reduce_type!r} is not known; allowed are {', '.join(_REDUCTIONS)}")


def _check_root(ordinal: int) -> None:
    if ordinal != 0:
        raise ValueError(f"replica {ordinal} does not exist: the run has one, number 0")


def _check_count(name: str, count: int) -> None:
    if count != 1:
        raise ValueError(f"{name}={count} does not fit the run, which has 1 replica")


def _scaled(tensor: torch.Tensor, scale: float) -> torch.Tensor:
    return tensor.clone() if scale == 1.0 else tensor * scale


def _give(results: list[torch.Tensor], output: Sequence[torch.Tensor] | None) -> list[torch.Tensor]:
    """The results, or `output` with them written into it."""
    if output is None:
        return results
    if len(output) != len(results):
        raise ValueError(f"output has {len(output)} tensors when it should have {len(results)}")
    for target, result in zip(output, results):
        target.copy_(result)
    return list(output)


def _for_each(inputs, output, compute: Callable[[torch.Tensor], torch.Tensor]):
    """`compute` of the tensor, or of each tensor of the list; `output` likewise."""
    if isinstance(inputs, torch.Tensor):
        return _give([compute(inputs)], None if output is None else [output])[0]
    return _give([compute(each) for each in inputs], output)


# ---- Collectives of tensors ----
def all_reduce(reduce_type: str, inputs, scale: float = 1.0, groups: list | None = None, pin_layout: bool = True):
    """Reduces over the replicas and multiplies by `scale`.

    Args:
        reduce_type: "sum", "mul", "and", "or", "min" or "max".
        inputs: a tensor, or a list of tensors, which are then written in place.
        scale: a number.
        groups: numbers of the replicas of each group; None is one group of all.
        pin_layout: accepted for the original's sake.

    Returns the reduced tensor; None for a list. Raises ValueError for another reduction or replicas that do not exist.
    """
    _check_reduction(reduce_type)
    _check_groups(groups)
    if isinstance(inputs, torch.Tensor):
        return _scaled(inputs, scale)
    for tensor in inputs if scale != 1.0 else ():
        with torch.no_grad():
            tensor.mul_(scale)
    return None


def all_gather(value, dim: int = 0, groups: list | None = None, output=None, pin_layout: bool = True):
    """Joins the replicas' values along `dim`.

    Args:
        value: a tensor of one dim or more, or a list of such.
        dim: counts from the end if negative. Raises IndexError if there is no such dim.
        groups, pin_layout: as in all_reduce.
        output: a tensor (a list of them) of the result's shape to write into.

    Returns a tensor (a list of tensors) as long along `dim` as all replicas' values.
    """
    _check_groups(groups)

    def gather(tensor):
        tensor.size(dim)
        return tensor.clone()

    return _for_each(value, output, gather)


def reduce_scatter(
    reduce_type: str,
    input,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: list | None = None,
    output=None,
    pin_layout: bool = True,
):
    """Reduces over the replicas, cuts the result along `scatter_dim` and keeps this replica's part.

    Args:
        reduce_type, scale, groups, pin_layout: as in all_reduce.
        input: a tensor, or a list of tensors.
        shard_count: how many parts; the number of replicas.
        output: a tensor (a list of them) to write into.

    Returns a tensor (a list of tensors).
    """
    _check_reduction(reduce_type)
    _check_groups(groups)
    _check_count("shard_count", shard_count)

    def scatter(tensor):
        tensor.size(scatter_dim)
        return _scaled(tensor, scale)

    return _for_each(input, output, scatter)


def all_to_all(
    value: torch.Tensor,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: list | None = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """Cuts each replica's value into `split_count` parts (the number of replicas), the i-th goes to the i-th replica.

    Returns the parts that this replica got, joined along `concat_dimension`.
    """
    _check_groups(groups)
    _check_count("split_count", split_count)
    value.size(split_dimension), value.size(concat_dimension)
    return value.clone()


def collective_permute(value: torch.Tensor, pairs: Iterable[Sequence[int]]) -> torch.Tensor:
    """Sends values between replicas.

    Args:
        pairs: (source, target) of each transfer.

    Returns what this replica got, zeros if it is no target.
    """
    pairs = [tuple(pair) for pair in pairs]
    for ordinal in sum(pairs, ()):
        _check_root(ordinal)
    return value.clone() if pairs else torch.zeros_like(value)


def collective_broadcast(
    tensors: list[torch.Tensor], root_ordinal: int = 0, groups: list | None = None, pin_layout: bool = True
) -> None:
    """Overwrites the tensors with those of the replica `root_ordinal`."""
    _check_groups(groups)
    _check_root(root_ordinal)


def send(value: torch.Tensor, channel_id: int) -> torch.Tensor:
    """Sends to another replica. Raises RuntimeError: there is none."""
    raise RuntimeError("send() needs a second replica, and the run has 1")


def recv(output: torch.Tensor, channel_id: int) -> torch.Tensor:
    """Receives from another replica. Raises RuntimeError: there is none."""
    raise RuntimeError("recv() needs a second replica, and the run has 1")


# ---- Many tensors in few transfers ----
def all_reduce_bucketized_gradients(
    gradients: list[torch.Tensor],
    scale: float = 1.0,
    groups: list | None = None,
    pin_layout: bool = True,
    bucket_cap_mb: int = 0,
) -> None:
    """all_reduce of a list by sum, in place, in transfers of about `bucket_cap_mb`."""
    all_reduce(REDUCE_SUM, gradients, scale=scale, groups=groups, pin_layout=pin_layout)


def all_gather_bucketized(
    input_list: list[torch.Tensor],
    dim: int = 0,
    groups: list | None = None,
    output=None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> list[torch.Tensor]:
    """all_gather of a list, in transfers of about `bucket_cap_mb`."""
    return all_gather(input_list, dim, groups, output, pin_layout)


def reduce_scatter_bucketized(
    reduce_type: str,
    input_list: list[torch.Tensor],
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: list | None = None,
    output=None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> list[torch.Tensor]:
    """reduce_scatter of a list, in transfers of about `bucket_cap_mb`."""
    return reduce_scatter(reduce_type, input_list, scale, scatter_dim, shard_count, groups, output, pin_layout)


# ---- Meeting of processes ----
def rendezvous(tag: str, payload: bytes = b"", replicas: list | None = None) -> list[bytes]:
    """Waits until all processes have come to the rendezvous `tag`.

    Args:
        payload: bytes for the others.
        replicas: numbers of those who meet; None or empty is all.

    Returns everybody's payload, in order.
    """
    _check_groups([replicas] if replicas else None)
    return [payload]


def xla_rendezvous(payload: bytes = b"", ordinals: list | None = None, tag: str | None = None) -> list[bytes]:
    """As rendezvous()."""
    return rendezvous(tag or "", payload, ordinals)


def mesh_reduce(tag: str, data, reduce_fn: Callable):
    """`reduce_fn` of the list of all processes' `data`, whose tensors have been moved to the CPU."""
    cpu_data = for_each_instance_rewrite(
        data, lambda value: isinstance(value, torch.Tensor) and value.device.type == "xla", lambda t: t.cpu()
    )
    return reduce_fn([cpu_data])


def do_on_ordinals(target: Callable, data: Iterable = (), ordinals: Sequence[int] = (0,)) -> None:
    """Calls `target(*data)`, with tensors on the CPU, in the processes `ordinals`, and waits for it in all."""
    if _runtime.global_ordinal() in ordinals:
        mesh_reduce("do_on_ordinals", tuple(data), lambda all_data: target(*all_data[0]))


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Overwrites the model's parameters and buffers with those of the first replica."""
    collective_broadcast([*model.parameters(), *model.buffers()])


# ---- Replication ----
def set_replication(device, devices: Sequence) -> None:
    """Says which devices run the same program.

    Args:
        device: this thread's device.
        devices: all of them; empty switches replication off.

    Raises ValueError for more devices than the run has.
    """
    if len(devices) > _runtime.world_size():
        raise ValueError(f"replication over {list(devices)} needs {len(devices)} devices, and the run has 1")
