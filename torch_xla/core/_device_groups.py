"""The members of a collective in a program over the devices of a plugin: devices, each with its own shard."""

import itertools
from collections.abc import Callable, Iterable, Sequence

import torch

from .. import _XLAC

_OPERATIONS = {"sum": "add", "mul": "multiply", "min": "minimum", "max": "maximum", "and": "and", "or": "or"}


def num_partitions() -> int:
    """The number of devices of a program; 1 on the embedded engine. torch.compile takes it as a constant."""
    return _XLAC._num_partitions()


num_partitions._dynamo_marked_constant = True  # as in _world.py


def check_devices(devices: Iterable[int]) -> None:
    """Raises ValueError for a number that no device of the program has."""
    count = num_partitions()
    for device in devices:
        if not 0 <= device < count:
            raise ValueError(f"device {device} does not exist: the program has {count}, numbered from 0")


class _Exchange(torch.autograd.Function):
    """move(t), whose gradient is back(gradient)."""

    @staticmethod
    def forward(ctx, t: torch.Tensor, move: Callable, back: Callable) -> torch.Tensor:
        ctx.back = back
        return move(t)

    @staticmethod
    def backward(ctx, grad_output: torch.Tensor) -> tuple:
        return ctx.back(grad_output), None, None


class DeviceGroups:
    """Groups of devices that exchange their shards of tensors; None is one of all.

    Raises ValueError for groups of different sizes, and unless each device is in one group.
    """

    def __init__(self, groups: Iterable[Iterable[int]] | None):
        count = num_partitions()
        self.groups = [[int(device) for device in group] for group in groups or [range(count)]]
        self.ranks = self.groups[0]
        flat = list(itertools.chain.from_iterable(self.groups))
        check_devices(flat)
        if len({len(group) for group in self.groups}) != 1:
            raise ValueError(f"groups {self.groups} are not of one size")
        if sorted(flat) != list(range(count)):
            raise ValueError(f"groups {self.groups} do not have each of the program's {count} devices once")

    def __len__(self) -> int:
        return len(self.ranks)

    def _exchange(
        self, t: torch.Tensor, name: str, reduction: str = "", dims: Sequence[int] = (), groups=None
    ) -> torch.Tensor:
        groups = self.groups if groups is None else groups
        return _XLAC._exchange_shards(t, name, reduction, [d for group in groups for d in group], len(groups), dims)

    def reduce(self, t: torch.Tensor, reduction: str) -> torch.Tensor:
        """Each group's shards, combined. No gradient."""
        return self._exchange(t, "all_reduce_shards", _OPERATIONS[reduction])

    def gather(self, t: torch.Tensor, dim: int) -> torch.Tensor:
        """Each group's shards, joined along the dim. No gradient."""
        return self._exchange(t, "all_gather_shards", dims=[dim % t.dim()])

    def gradient_of_gather(self, grad: torch.Tensor, dim: int) -> torch.Tensor:
        """The sum of the devices' gradients of each part."""
        return self.scatter(grad, "sum", dim)

    def scatter(self, t: torch.Tensor, reduction: str, dim: int) -> torch.Tensor:
        """Each group's shards, combined; each device keeps its part along the dim. The gradient passes as of a sum."""
        dim %= t.dim()

        def reduce_scatter(t):
            return self._exchange(t, "reduce_scatter_shards", _OPERATIONS[reduction], [dim])

        return _Exchange.apply(t, reduce_scatter, lambda grad: self.gather(grad, dim))

    def exchange(self, t: torch.Tensor, split: int, concat: int) -> torch.Tensor:
        """Each device gets its part along dim `split` of each shard of its group, joined along `concat`."""

        def all_to_all(t, *dims):
            return self._exchange(t, "all_to_all_shards", dims=dims)

        split, concat = split % t.dim(), concat % t.dim()
        return _Exchange.apply(t, lambda t: all_to_all(t, split, concat), lambda grad: all_to_all(grad, concat, split))

    def permute(self, t: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> torch.Tensor:
        """Sends shards from the pairs' sources to their targets; other devices get zeros."""

        def send(t, pairs):
            return self._exchange(t, "permute_shards", groups=pairs) if pairs else torch.zeros_like(t)

        return _Exchange.apply(t, lambda t: send(t, pairs), lambda grad: send(grad, [(b, a) for a, b in pairs]))

    def broadcast(self, t: torch.Tensor, root: int) -> torch.Tensor:
        """The shard of each group's device at this position."""
        return self.gather(t.unsqueeze(0), 0).select(0, root)
