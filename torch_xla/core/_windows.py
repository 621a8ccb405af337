"""Paddings and windows of torch_xla.core.xla_builder: reductions of windows, scatters to selected elements."""

import itertools
from collections.abc import Callable, Sequence

import torch

from ._scatters import combine_at

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # element by element
Pairs = Sequence[tuple[int, int]]  # of each dim: elements before and behind


def padded(tensor: torch.Tensor, value: torch.Tensor, config: Sequence[tuple[int, int, int]]) -> torch.Tensor:
    """With `value` around and between the elements: for each dim before, behind, between. Negative ones remove
    elements.
    """
    if len(config) != tensor.dim():
        raise ValueError(f"a tensor of {tensor.dim()} dims needs as many (low, high, interior), but got {len(config)}")
    for dim, (_, _, interior) in enumerate(config):
        size = tensor.size(dim)
        if interior and size > 1:
            sizes = [*tensor.shape[:dim], (size - 1) * (interior + 1) + 1, *tensor.shape[dim + 1 :]]
            index = torch.arange(size, device=tensor.device) * (interior + 1)
            tensor = value.expand(sizes).index_copy(dim, index, tensor)
    for dim, (low, high, _) in enumerate(config):
        tensor = tensor.narrow(dim, max(-low, 0), tensor.size(dim) - max(-low, 0) - max(-high, 0))
        parts = [
            value.expand([n if d == dim else s for d, s in enumerate(tensor.shape)])
            for n in (max(low, 0), max(high, 0))
        ]
        if low > 0 or high > 0:
            tensor = torch.cat([parts[0], tensor, parts[1]], dim)
    return tensor


def pairs_of(padding: str, sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int]) -> Pairs:
    """XLA's padding by name: "valid" pads nothing, "same" pads to ceil(size / stride) windows.

    Raises ValueError for another name.
    """
    if padding not in ("valid", "same"):
        raise ValueError(f"the padding {padding!r} is not known; it can be 'valid' or 'same'")
    if padding == "valid":
        return [(0, 0)] * len(sizes)
    totals = [
        max(((size + stride - 1) // stride - 1) * stride + window - size, 0)
        for size, window, stride in zip(sizes, windows, strides, strict=True)
    ]
    return [(total // 2, total - total // 2) for total in totals]


def _count(size: int, window: int, stride: int) -> int:
    return max((size - window) // stride + 1, 0)


def _places(tensor: torch.Tensor, dim: int, first: int, count: int, stride: int) -> torch.Tensor:
    """`count` places along the dim, every `stride`-th one from the first on."""
    return tensor[(slice(None),) * dim + (slice(first, first + max(count - 1, 0) * stride + min(count, 1), stride),)]


def reduce_windows(
    tensors: Sequence[torch.Tensor],
    inits: Sequence[torch.Tensor],
    combine: Callable[..., Sequence[torch.Tensor]],
    windows: Sequence[int],
    strides: Sequence[int],
    pads: Pairs,
    dilations: Sequence[int] | None = None,
) -> list[torch.Tensor]:
    """Each window's elements and the inits, combined by an associative and commutative function, one dim at a time.

    `combine(*of_one, *of_another)` takes and returns an element for each tensor; all have one shape.
    """
    around = [(low, high, 0) for low, high in pads]
    values = [padded(tensor, init, around) for tensor, init in zip(tensors, inits, strict=True)]
    for dim, (window, stride) in enumerate(zip(windows, strides, strict=True)):
        step = dilations[dim] if dilations else 1
        count = _count(values[0].size(dim), (window - 1) * step + 1, stride)
        parts = [[_places(value, dim, k * step, count, stride) for value in values] for k in range(window)]
        while len(parts) > 1:
            pairs = [combine(*a, *b) for a, b in zip(parts[::2], parts[1::2])]
            parts = pairs + parts[2 * len(pairs) :]
        values = parts[0]
    return list(combine(*(init.expand(value.shape) for init, value in zip(inits, values)), *values))


def select_and_scatter(
    tensor: torch.Tensor,
    source: torch.Tensor,
    init: torch.Tensor,
    windows: Sequence[int],
    strides: Sequence[int],
    select: Combine,
    combine: Combine,
    pads: Pairs,
) -> torch.Tensor:
    """A tensor of `init`; each element of `source` is combined into the element that its window selects.

    The elements of a window are taken in their order; `select(chosen, next)` says whether the chosen one stays.
    """
    numbers = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape)
    around = [(low, high, 0) for low, high in pads]
    values = padded(tensor, tensor.new_zeros(()), around)
    numbers = padded(numbers, numbers.new_full((), -1), around)
    chosen = number = None
    for offsets in itertools.product(*map(range, windows)):
        value, place = values, numbers
        for dim, offset in enumerate(offsets):
            count = _count(values.size(dim), windows[dim], strides[dim])
            value, place = (_places(each, dim, offset, count, strides[dim]) for each in (value, place))
        if number is None:
            chosen, number = value, place
            continue
        taken = (place >= 0) & ((number < 0) | ~select(chosen, value))
        chosen, number = torch.where(taken, value, chosen), torch.where(taken, place, number)
    result = init.expand(tensor.numel())
    return combine_at(result, number.flatten(), source.flatten(), combine).reshape(tensor.shape)
