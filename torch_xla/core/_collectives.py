"""Collectives between the replicas of a run (part of `xm`): operations of the graph, which run with the operations
around them.

All replicas have to record the same ones in the same order. In a run of one replica each returns that replica's result.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence

import torch

from .. import _world
from ..experimental.eager import as_one_operation
from ._buckets import few, LARGEST_MB, rewrite, scaled
from ._device_groups import DeviceGroups
from ._members import check_member, Members, members_of

REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"
_REDUCTIONS = (REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX)


def _check_reduction(reduce_type: str) -> str:
    reduction = reduce_type.lower()
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction {reduce_type!r} is not known; allowed are {', '.join(_REDUCTIONS)}")
    return reduction


def _check_count(name: str, count: int, members: int) -> None:
    if count != members:
        raise ValueError(f"{name}={count} does not fit the group, which has {members} replicas")


# ---- Many tensors in few transfers ----
def _of_one(tensor: torch.Tensor, scale: float) -> torch.Tensor:
    """The result of a single replica: a new tensor."""
    return tensor.clone() if scale == 1.0 else tensor * scale


def _give(results: list[torch.Tensor], output: Sequence[torch.Tensor] | None) -> list[torch.Tensor]:
    """The results, or `output` after they are written into it; it takes their shapes."""
    if output is None:
        return results
    if len(output) != len(results):
        raise ValueError(f"output has {len(output)} tensors when it should have {len(results)}")
    for target, result in zip(output, results):
        target.resize_(result.shape).copy_(result)
    return list(output)


def _for_each(inputs, output, compute: Callable[[torch.Tensor], torch.Tensor]):
    """`compute` of the tensor, or of each tensor of the list, with `output` of the same form."""
    if isinstance(inputs, torch.Tensor):
        return _give([compute(inputs)], None if output is None else [output])[0]
    return _give([compute(each) for each in inputs], output)


# ---- Collectives of tensors ----
class _AllReduce(torch.autograd.Function):
    """The gradient of a sum over replicas is the sum of their gradients."""

    @staticmethod
    def forward(ctx, value, reduction, scale, members):
        ctx.scale, ctx.members = scale, members
        return scaled(members.reduce(value, reduction), scale)

    @staticmethod
    def backward(ctx, grad):
        return scaled(ctx.members.reduce(grad, REDUCE_SUM), ctx.scale), None, None, None


class _AllGather(torch.autograd.Function):
    """The members have the rule of the gradient."""

    @staticmethod
    def forward(ctx, value, dim, members):
        ctx.dim, ctx.members = dim, members
        return members.gather(value, dim)

    @staticmethod
    def backward(ctx, grad):
        return ctx.members.gradient_of_gather(grad, ctx.dim), None, None


def all_reduce(reduce_type: str, inputs, scale: float = 1.0, groups: list | None = None, pin_layout: bool = True):
    """Reduces over the replicas and multiplies by `scale`.

    Args:
        reduce_type: "sum", "mul", "and", "or", "min" or "max". Gradients pass as through a sum.
        inputs: a tensor, or a list of tensors to write in place, in few transfers.
        scale: a number.
        groups: numbers of the replicas of each group; None is one group of all. In a program over the devices of a
            plugin, devices: after enable_manual_sharding() each reduces its shard. A whole tensor has one value for
            all of them, which stays as it is.
        pin_layout: accepted for the original's sake.

    Returns the reduced tensor, or the list. Raises ValueError for another reduction or replicas that do not exist.
    """
    reduction = _check_reduction(reduce_type)
    members = members_of(inputs, groups)
    if isinstance(inputs, torch.Tensor):
        if len(members) == 1:
            return _of_one(inputs, scale)
        return _AllReduce.apply(inputs, reduction, scale, members)
    _reduce_list(reduction, list(inputs), scale, members)
    return inputs


def _reduce_list(
    reduction: str, tensors: list[torch.Tensor], scale: float, members: Members | DeviceGroups, megabytes: float = 0
) -> None:
    """In buckets of about this many megabytes; 0: in a few, which begin with the last tensors.

    Gradients come in the order of the parameters, and a backward makes them in reverse order.
    """
    if len(members) > 1 and tensors:
        with as_one_operation(tensors[0].device.index):
            rewrite(
                tensors[::-1],
                lambda t: members.reduce(t, reduction),
                megabytes or few(tensors),
                scale,
            )
    elif scale != 1.0:
        with torch.no_grad():
            torch._foreach_mul_(tensors, scale)


def all_gather(
    value,
    dim: int = 0,
    groups: list | None = None,
    output=None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
):
    """Joins the replicas' values along `dim`. Each replica gets the gradient of its part; each device of a program over
    several gets the sum of their gradients of its part.

    Args:
        value: a tensor with at least one dim, or a list of such.
        dim: counts from the end if negative. Raises IndexError if there is no such dim.
        groups: as in all_reduce.
        output: a tensor (a list of them) of the result's shape to write into.
        pin_layout, channel_id, use_global_device_ids: accepted for the original's sake.

    Returns a tensor (a list of tensors) as long along `dim` as all replicas' values.
    """
    members = members_of(value, groups, "all_gather")

    def gather(tensor):
        tensor.size(dim)
        return tensor.clone() if len(members) == 1 else _AllGather.apply(tensor, dim, members)

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
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
):
    """Reduces over the replicas, cuts the result along `scatter_dim` and keeps this replica's part.

    Args:
        reduce_type, scale, groups: as in all_reduce.
        input: a tensor, or a list of tensors; `output`: the same, to write into.
        shard_count: the number of parts; a group's number of replicas. Raises ValueError if it does not divide the dim.
        pin_layout, channel_id, use_global_device_ids: accepted for the original's sake.

    Returns a tensor (a list of tensors).
    """
    reduction = _check_reduction(reduce_type)
    members = members_of(input, groups, "reduce_scatter")
    _check_count("shard_count", shard_count, len(members))

    def scatter(tensor):
        if tensor.size(scatter_dim) % shard_count:
            raise ValueError(f"{shard_count} replicas cannot share dim {scatter_dim} of sizes {list(tensor.shape)}")
        if len(members) == 1:
            return _of_one(tensor, scale)
        return scaled(members.scatter(tensor, reduction, scatter_dim), scale)

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

    Returns this replica's parts, joined along `concat_dimension`.
    """
    members = members_of(value, groups, "all_to_all")
    _check_count("split_count", split_count, len(members))
    if value.size(split_dimension) % split_count:
        raise ValueError(f"{split_count} replicas cannot share dim {split_dimension} of sizes {list(value.shape)}")
    value.size(concat_dimension)
    if len(members) == 1:
        return value.clone()
    return members.exchange(value, split_dimension, concat_dimension)


def collective_permute(value: torch.Tensor, pairs: Iterable[Sequence[int]]) -> torch.Tensor:
    """Sends values between replicas.

    Args:
        pairs: (source, target) of each transfer; no replica may be a source or a target twice.

    Returns the received value, zeros if this replica is no target.
    """
    pairs = [tuple(pair) for pair in pairs]
    ordinals = list(itertools.chain.from_iterable(pairs))
    members = members_of(value, None, "collective_permute", is_exchanged=any(ordinals))
    for ordinal in ordinals:
        check_member(value, ordinal, members)
    for side in zip(*pairs):
        if len(set(side)) < len(side):
            raise ValueError(f"the pairs {pairs} name a source or a target twice")
    if len(members) == 1:
        return value.clone() if pairs else torch.zeros_like(value)
    return members.permute(value, pairs)


def collective_broadcast(
    tensors: list[torch.Tensor], root_ordinal: int = 0, groups: list | None = None, pin_layout: bool = True
) -> None:
    """Overwrites the tensors by those of replica `root_ordinal`, in few transfers."""
    members = members_of(tensors, groups)
    if root_ordinal not in members.ranks:
        raise ValueError(f"replica {root_ordinal} does not exist among {members.ranks}, which take part")
    if len(members) > 1:
        root = members.ranks.index(root_ordinal)
        rewrite(list(tensors), lambda t: members.broadcast(t, root), LARGEST_MB)


def _peer(value: torch.Tensor, channel_id: int, sends: bool) -> tuple[int, Members]:
    """The other end of a channel: of two replicas the other one; of more, the next to use the channel."""
    members = members_of(value, None)
    if len(members) == 1:
        raise RuntimeError(f"{'send' if sends else 'recv'}() needs a second replica, and the run has 1")
    rank = _world.of(value).rank
    if len(members) == 2:
        return 1 - rank, members
    _world.run_collectives()
    store = _world.of(value).store
    ours, theirs = ("sender", "receiver") if sends else ("receiver", "sender")
    number = store.add(f"channel/{channel_id}/{ours}s", 1)
    store.set(f"channel/{channel_id}/{ours}/{number}", str(rank))
    return int(store.get(f"channel/{channel_id}/{theirs}/{number}")), members


def send(value: torch.Tensor, channel_id: int) -> torch.Tensor:
    """Sends to the replica that calls recv() with the same channel, and returns the value.

    Of two replicas that is the other one. With more, this call waits until a replica calls recv() for the channel. The
    program does not wait for the receipt. Raises RuntimeError in a run of one.
    """
    target, members = _peer(value, channel_id, sends=True)
    return torch.ops.xla.send(value, target, channel_id, members.name)


def recv(output: torch.Tensor, channel_id: int) -> torch.Tensor:
    """Receives the tensor of another replica's send() with the same channel, of the shape and dtype of `output`.

    Writes it into `output` too. Raises RuntimeError in a run of one.
    """
    source, members = _peer(output, channel_id, sends=False)
    return output.copy_(torch.ops.xla.recv(output, source, channel_id, members.name))


# ---- Lists ----
def all_reduce_bucketized_gradients(
    gradients: list[torch.Tensor],
    scale: float = 1.0,
    groups: list | None = None,
    pin_layout: bool = True,
    bucket_cap_mb: int = 0,
) -> None:
    """all_reduce of a list by sum, in place, in transfers of about `bucket_cap_mb`; 0: any size."""
    _reduce_list(REDUCE_SUM, list(gradients), scale, members_of(gradients, groups), bucket_cap_mb)


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


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Overwrites the model's parameters and buffers by the first replica's."""
    collective_broadcast([*model.parameters(), *model.buffers()])
