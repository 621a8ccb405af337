"""Gathers, scatters and sorts of torch_xla.core.xla_builder, with functions of the user's own."""

from collections.abc import Callable, Sequence

import torch


def combine_at(
    tensor: torch.Tensor,
    places: torch.Tensor,
    updates: torch.Tensor,
    combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """The flat tensor with each update combined into the element at its place; places outside are left out.

    `combine(old, update)` is associative, element by element. Updates of one place are combined with each other first.
    """
    if not len(places) or not len(tensor):
        return tensor
    count = len(tensor)
    places, order = torch.sort(torch.where((places >= 0) & (places < count), places, count), stable=True)
    updates, step = updates[order], 1
    while step < len(places):  # each gets the ones of its place among the `step` before it
        same = places[step:] == places[:-step]
        combined = torch.where(same, combine(updates[:-step], updates[step:]), updates[step:])
        updates, step = torch.cat([updates[:step], combined]), step * 2
    is_last = torch.cat([places[1:] != places[:-1], torch.ones_like(places[:1], dtype=torch.bool)])
    places = torch.where(is_last, places, count)  # one more place, for unused updates
    longer = torch.cat([tensor, tensor[:1]])
    return longer.index_copy(0, places, combine(longer[places], updates))[:count]


def block(tensor: torch.Tensor, sizes: Sequence[int], starts: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The indices of a block, moved to lie within the tensor: for each dim indices to broadcast."""
    places = []
    for dim, (size, start) in enumerate(zip(sizes, starts, strict=True)):
        first = start.reshape(()).to(torch.int64).clamp(0, tensor.size(dim) - size)
        along = torch.arange(size, device=tensor.device) + first
        places.append(along.reshape([-1 if d == dim else 1 for d in range(tensor.dim())]))
    return tuple(places)


class _Indices:
    """The windows of a gather or scatter in the operand.

    Args:
        operand: the sizes of its dims.
        indices: a tensor whose dim `vector_dim` holds one number for each dim of `map`; it may have no such dim.
        map: the operand's dims for these numbers.
        collapsed: dims of the operand that windows lack.
        batching: dims of the operand and of the indices that run together.
    """

    def __init__(
        self,
        operand: Sequence[int],
        indices: torch.Tensor,
        map: Sequence[int],
        vector_dim: int,
        collapsed: Sequence[int],
        batching: tuple[Sequence[int], Sequence[int]],
    ):
        self._numbers = indices.unsqueeze(-1) if vector_dim == indices.dim() else indices.movedim(vector_dim, -1)
        self.batch = self._numbers.shape[:-1]
        self._map, self._device = list(map), indices.device
        self._batching = {dim: of - (of > vector_dim) for dim, of in zip(*batching, strict=True)}
        self._operand = list(operand)
        self.window_dims = [d for d in range(len(operand)) if d not in collapsed and d not in self._batching]

    def of(self, window: Sequence[int], inside: bool) -> list[torch.Tensor]:
        """For each dim of the operand its indices for [batch, window], to broadcast.

        Args:
            window: the sizes of windows in all dims of the operand.
            inside: windows are moved so that they lie within the operand.
        """
        rank, places = len(self.batch) + len(self.window_dims), []
        for dim, size in enumerate(window):
            if dim in self._batching:
                shape = [-1 if d == self._batching[dim] else 1 for d in range(rank)]
                places.append(torch.arange(self._operand[dim], device=self._device).reshape(shape))
                continue
            place = torch.zeros([1] * rank, dtype=torch.int64, device=self._device)
            if dim in self._map:
                start = self._numbers[..., self._map.index(dim)].to(torch.int64)
                start = start.clamp(0, self._operand[dim] - size) if inside else start
                place = start.reshape([*self.batch, *[1] * len(self.window_dims)])
            if dim in self.window_dims:
                at = len(self.batch) + self.window_dims.index(dim)
                along = torch.arange(size, device=self._device).reshape([-1 if d == at else 1 for d in range(rank)])
                place = place + along
            places.append(place)
        return places


def _order(rank: int, window_dims: Sequence[int]) -> list[int]:
    """The dims of a gather's result or a scatter's updates: those of the batch, then of the window."""
    return [*(d for d in range(rank) if d not in window_dims), *window_dims]


def gather(
    operand: torch.Tensor,
    indices: torch.Tensor,
    offset_dims: Sequence[int],
    collapsed: Sequence[int],
    map: Sequence[int],
    vector_dim: int,
    slice_sizes: Sequence[int],
    batching: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> torch.Tensor:
    """XLA's gather: a window of `slice_sizes` at each index."""
    where = _Indices(operand.shape, indices, map, vector_dim, collapsed, batching)
    result = operand[tuple(where.of(slice_sizes, inside=True))]
    shape = [*where.batch, *(slice_sizes[d] for d in where.window_dims)]
    order = _order(len(shape), offset_dims)
    return result.expand(shape).permute([order.index(d) for d in range(len(shape))])


def scatter(
    operand: torch.Tensor,
    indices: torch.Tensor,
    updates: torch.Tensor,
    combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    window_dims: Sequence[int],
    inserted: Sequence[int],
    map: Sequence[int],
    vector_dim: int,
    batching: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> torch.Tensor:
    """XLA's scatter: the operand with the windows `updates` combined into it at the indices; elements outside are left
    out.
    """
    where = _Indices(operand.shape, indices, map, vector_dim, inserted, batching)
    updates = updates.permute(_order(updates.dim(), window_dims))
    window = [1] * operand.dim()
    for number, dim in enumerate(where.window_dims):
        window[dim] = updates.size(len(where.batch) + number)
    flat = torch.zeros([1] * updates.dim(), dtype=torch.int64, device=operand.device)
    inside = torch.ones([1] * updates.dim(), dtype=torch.bool, device=operand.device)
    for place, size in zip(where.of(window, inside=False), operand.shape):
        flat, inside = flat * size + place, inside & (place >= 0) & (place < size)
    places = torch.where(inside, flat, -1).expand(updates.shape).flatten()
    return combine_at(operand.flatten(), places, updates.flatten(), combine).reshape(operand.shape)


def sort(tensors: Sequence[torch.Tensor], comes_before: Callable[..., torch.Tensor], dim: int) -> list[torch.Tensor]:
    """The tensors in the order of a function of the user's own, by a bitonic network; equal elements keep their order.

    `comes_before(a0, b0, a1, b1, ...)` gets two elements of each tensor.
    """
    tensors = [tensor.movedim(dim, -1) for tensor in tensors]
    count = tensors[0].size(-1)
    width = 1 << max(count - 1, 0).bit_length()
    numbers = torch.arange(width, device=tensors[0].device).expand(*tensors[0].shape[:-1], width)

    def elements(places: torch.Tensor) -> list[torch.Tensor]:
        flat = places.clamp(max=count - 1).flatten(-2)
        return [tensor.gather(-1, flat).unflatten(-1, places.shape[-2:]) for tensor in tensors]

    def is_before(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        of_a, of_b = elements(a), elements(b)
        first = comes_before(*(each for pair in zip(of_a, of_b) for each in pair))
        second = comes_before(*(each for pair in zip(of_b, of_a) for each in pair))
        return torch.where((a < count) & (b < count), first | (~second & (a < b)), a < b)

    block = 2
    while block <= width and count:
        distance = block // 2
        while distance:
            pairs = numbers.unflatten(-1, (-1, 2, distance))
            a, b = pairs[..., 0, :], pairs[..., 1, :]
            rows = torch.arange(a.size(-2), device=a.device)[:, None]
            keep = is_before(a, b) == (rows * (2 * distance) & block == 0)
            numbers = torch.stack([torch.where(keep, a, b), torch.where(keep, b, a)], -2).flatten(-3)
            distance //= 2
        block *= 2
    return [tensor.gather(-1, numbers[..., :count]).movedim(-1, dim) for tensor in tensors]
