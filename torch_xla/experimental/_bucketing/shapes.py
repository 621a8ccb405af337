"""Rules of functions that make tensors from sizes, move dims, take parts of tensors or join them."""

import operator
from collections.abc import Callable

import torch

from .extents import Extent, Factor, is_padded, PaddedSize, plain, regroup, size_of
from .pointwise import check_write, pointwise
from .run import leaves_of, padded_ints, Run, takes_sizes

_MADE = "zeros ones empty full rand randn randint new_zeros new_ones new_empty new_full".split()
_RESHAPED = "view reshape flatten unflatten ravel view_as reshape_as".split()
_MOVED = "transpose permute movedim moveaxis swapaxes swapdims t T mT adjoint squeeze unsqueeze".split()

# Functions that mix along one dim only: its argument's position, name and default.
_ALONG = {
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "tensor_split"), (2, "dim", 0)),
    "unbind": (1, "dim", 0),
    "flip": (1, "dims", None),
    **dict.fromkeys(("glu", "sort", "argsort"), (1, "dim", -1)),
    "diff": (2, "dim", -1),
    "roll": (2, "dims", None),
}
# Element i of the result needs only the elements up to i.
_PREFIXES = "cumsum cumprod cummax cummin logcumsumexp".split()


def probe(func: Callable, dims: tuple[Extent, ...], *args, **kwargs) -> list[int | None]:
    """Maps the dims of `func`'s result to its operand's, by a probe tensor with another size in each dim."""
    sizes = [1 if e == plain(1) else i + 2 for i, e in enumerate(dims)]
    result = func(torch.empty(sizes, device="meta"), *args, **kwargs)
    result = result[0] if isinstance(result, tuple) else result
    return [None if size == 1 else size - 2 for size in result.shape]


def picked(dims: tuple[Extent, ...], found: list[int | None]) -> tuple[Extent, ...]:
    """The extents of the dims that probe() has found."""
    return tuple(plain(1) if i is None else dims[i] for i in found)


def probed(func: Callable, dims: tuple[Extent, ...], *args, **kwargs) -> tuple[Extent, ...]:
    """The extents of the result of `func`."""
    return picked(dims, probe(func, dims, *args, **kwargs))


@takes_sizes
def _made(run: Run, func: Callable, *args, **kwargs):
    """A tensor of given sizes: `f(..., 2, 3)`, `f(..., (2, 3))` or `f(..., size=(2, 3))`."""
    ints = [a for a in args if isinstance(a, int)]
    sizes = kwargs.get("size", next((a for a in args if isinstance(a, (tuple, list))), ints))
    others = [a for a in (*args, *kwargs.values()) if a is not sizes and not (sizes is ints and isinstance(a, int))]
    if any(isinstance(leaf, PaddedSize) for leaf in leaves_of(others)):
        raise run.error(func, "the size of a padded dim as a number")
    result = func(*padded_ints(args), **padded_ints(kwargs))
    return run.mark(result, [s.extent if isinstance(s, PaddedSize) else plain(s) for s in sizes])


@takes_sizes
def _arange(run: Run, func: Callable, *args, **kwargs):
    start, end = args if len(args) == 2 else (0, *args) if len(args) == 1 else (None, None)
    if type(start) is not int or not isinstance(end, PaddedSize) or len(end.extent) != 1:
        raise run.error(func, "the size of a padded dim, but as the end of integers from a plain number on")
    (factor,) = end.extent
    extent = (Factor(factor.size - start, factor.label, factor.offset - start),)
    return run.repeated(run.mark(func(start, int.__index__(end), **kwargs), [extent]), 0)


@takes_sizes
def _reshaped(run: Run, func: Callable, input: torch.Tensor, *args, **kwargs):
    if any(isinstance(a, torch.dtype) for a in args) or "dtype" in kwargs:
        raise run.error(func, "padded dims seen as another dtype")
    result = func(input, *padded_ints(args), **padded_ints(kwargs))
    dims = regroup(run.dims_of(input), result.shape)
    given = [set(leaf.extent) for leaf in leaves_of((args, kwargs)) if isinstance(leaf, PaddedSize)]
    if dims is None or any(factors not in map(set, dims) for factors in given):
        raise run.error(func, f"{run.text(input)} as {tuple(result.shape)}, of other dims than the padded ones")
    return run.mark(result, dims)


def _moved(run: Run, func: Callable, input: torch.Tensor, *args, **kwargs):
    dims = run.dims_of(input)
    if any(size_of(e) == 1 and is_padded(e) for e in dims) and func.__name__ == "squeeze":
        raise run.error(func, "padded dims of one element")
    return run.mark(func(input, *args, **kwargs), probed(func, dims, *args, **kwargs))


@takes_sizes
def _expanded(run: Run, func: Callable, input: torch.Tensor, *args, **kwargs):
    result = func(input, *padded_ints(args), **padded_ints(kwargs))
    sizes = [leaf for leaf in leaves_of((args, kwargs)) if isinstance(leaf, int)]
    given = [s.extent if isinstance(s, PaddedSize) else plain(1) for s in sizes]
    if args and isinstance(args[0], torch.Tensor):
        given = run.dims_of(args[0])
    dims = list(run.broadcast(func, [run.dims_of(input), given]))
    for i, size in enumerate(result.shape):
        if not is_padded(dims[i]):
            dims[i] = plain(size)
    return run.mark(result, dims)


@takes_sizes
def _repeated(run: Run, func: Callable, input: torch.Tensor, *args):
    counts = args[0] if args and isinstance(args[0], (tuple, list)) else args
    dims = [plain(1)] * (len(counts) - input.dim()) + list(run.dims_of(input))
    result = func(input, *padded_ints(args))
    for i, count in enumerate(counts):
        if isinstance(count, PaddedSize) and dims[i] == plain(1):
            dims[i] = count.extent
        elif not is_padded(dims[i]) and not isinstance(count, PaddedSize):
            dims[i] = plain(result.shape[i])
        elif count != 1:
            raise run.error(func, f"{counts} copies of {run.text(input)}")
    return run.mark(result, dims)


def _replaced(run: Run, results, dims: tuple[Extent, ...], dim: int, extent: Extent | None = None):
    """Marks results that differ from `dims` in one dim: it is removed, has this extent, or has no padding."""
    for result in leaves_of(results):
        if isinstance(result, torch.Tensor):
            kept = [extent or plain(result.shape[dim])] if result.dim() == len(dims) else []
            run.mark(result, [*dims[:dim], *kept, *dims[dim + 1 :]])
    return results


def _along(run: Run, func: Callable, input: torch.Tensor, *args, **kwargs):
    name = func.__name__
    at, word, default = _ALONG[name]
    dim = args[at - 1] if len(args) >= at else kwargs.get(word, kwargs.get("axis", default))
    dim = dim[0] if isinstance(dim, (tuple, list)) and len(dim) == 1 else dim
    dims = run.dims_of(input)
    others = [a for a in leaves_of((args, kwargs)) if run.is_padded(a) or isinstance(a, PaddedSize)]
    if type(dim) is not int or others:
        raise run.error(func, "padded dims with these arguments")
    dim %= len(dims)
    if is_padded(dims[dim]):
        raise run.error(func, f"a padded dim that it mixes (dim {dim})")
    return _replaced(run, func(input, *args, **kwargs), dims, dim)


def _prefixes(run: Run, func: Callable, input: torch.Tensor, dim: int, **kwargs):
    dims = run.dims_of(input)
    if is_padded(dims[dim]) and len(dims[dim]) > 1:
        raise run.error(func, "padded dims that were merged with others")
    return run.mark_all(func(input, dim, **kwargs), dims)


def _select(run: Run, func: Callable, input: torch.Tensor, dim: int, index: int):
    dims = run.dims_of(input)
    dim %= len(dims)
    if isinstance(index, PaddedSize):
        raise run.error(func, f"an element by the size of a padded dim, {index!r}")
    if not is_padded(dims[dim]):
        return _replaced(run, func(input, dim, index), dims, dim)
    if len(dims[dim]) > 1:
        raise run.error(func, "an element of a padded dim that was merged with others")
    true = run.true_size(dims[dim])
    if not -true <= index < true:
        raise IndexError(f"index {index} is out of bounds for dimension {dim} with size {true}")
    if index < 0:
        # Its place is a number of the run.
        place = run.count([dims[dim]], input.device) + index
        return _replaced(run, input.index_select(dim, place.view(1)).squeeze(dim), dims, dim)
    return _replaced(run, input.select(dim, index), dims, dim)


def _last(run: Run, func: Callable, input: torch.Tensor, dim: int, number: int):
    """The last existing elements."""
    dims = run.dims_of(input)
    if number > run.true_size(dims[dim]):
        raise run.error(func, f"the last {number} of {run.true_size(dims[dim])} elements")
    first = run.count([dims[dim]], input.device) - number
    places = torch.arange(number, device=input.device) + first
    return _replaced(run, input.index_select(dim, places), dims, dim)


def _slice_by_size(run: Run, func: Callable, input: torch.Tensor, dim: int, part: slice):
    """A slice as long as a padded dim, of its existing elements."""
    stop, start = part.stop, part.start or 0
    if not isinstance(stop, PaddedSize) or len(stop.extent) > 1 or type(start) is not int or part.step not in (None, 1):
        raise run.error(func, "sizes of padded dims, but as the end of a part")
    (factor,) = stop.extent
    if start < 0 or factor.size > input.shape[dim]:
        raise run.error(func, f"the first {stop!r} of {input.shape[dim]} elements")
    extent = (Factor(factor.size - start, factor.label, factor.offset - start),)
    result = input.narrow(dim, start, factor.size - start)
    return _replaced(run, result, run.dims_of(input), dim, extent)


def _end_of(part: slice, extent: Extent) -> int | PaddedSize | None:
    """The end of a part of a padded dim: negative if counted from the existing end; None for all of it."""
    stop = part.stop
    if isinstance(stop, PaddedSize) and len(stop.extent) == 1 and stop.extent[0].label == extent[0].label:
        before = stop.extent[0].offset - extent[0].offset
        return before if before < 0 else None
    return stop


def _slice(run: Run, func: Callable, input: torch.Tensor, dim: int, part: slice):
    dims = run.dims_of(input)
    extent = dims[dim]
    if not is_padded(extent):
        if any(isinstance(leaf, PaddedSize) for leaf in leaves_of(part)):
            return _slice_by_size(run, func, input, dim, part)
        return _replaced(run, input[(slice(None),) * dim + (part,)], dims, dim)
    if part == slice(None):
        return input
    start, stop = part.start or 0, _end_of(part, extent)
    if len(extent) > 1 or part.step not in (None, 1) or isinstance(start, PaddedSize) or isinstance(stop, PaddedSize):
        raise run.error(func, "this part of a padded dim")
    if start < 0 and stop is None:
        return _last(run, func, input, dim, -start)
    if start < 0 or stop == 0:
        raise run.error(func, "this part of a padded dim")
    if stop is not None and 0 < stop <= run.true_size(extent):
        return _replaced(run, input[(slice(None),) * dim + (slice(start, stop),)], dims, dim)
    # Up to the existing end, or to a place before it.
    (factor,), lost = extent, max(-(stop or 0), 0)
    size = max(factor.size - start - lost, 0)
    result = input[(slice(None),) * dim + (slice(start, start + size),)]
    return _replaced(run, result, dims, dim, (Factor(size, factor.label, factor.offset - start - lost),))


@takes_sizes
def _narrow(run: Run, func: Callable, input: torch.Tensor, dim: int, start: int, length: int):
    return _slice(run, func, input, dim % input.dim(), slice(start, start + length))


def _index_of_tensor(run: Run, func: Callable, input: torch.Tensor, dim: int, index: torch.Tensor):
    """x[:, index]: the dims of the index replace one dim. Negative indices count from the existing end."""
    dims = run.dims_of(input)
    if index.dtype in (torch.bool, torch.uint8):
        raise run.error(func, "masks as an index: the size of the result depends on values")
    if is_padded(dims[dim]):
        if len(dims[dim]) > 1:
            raise run.error(func, "an index of a padded dim that was merged with others")
        index_dims = run.dims_of(index)
        index = run.mark(torch.where(index < 0, index + run.count([dims[dim]], index.device), index), index_dims)
    result = input[(slice(None),) * dim + (index,)]
    return run.mark(result, [*dims[:dim], *run.dims_of(index), *dims[dim + 1 :]])


def _index_select(run: Run, func: Callable, input: torch.Tensor, dim: int, index: torch.Tensor):
    return _index_of_tensor(run, func, input, dim % input.dim(), index)


def _iter(run: Run, func: Callable, input: torch.Tensor):
    return iter(_along(run, torch.unbind, input))


@takes_sizes
def _getitem(run: Run, func: Callable, input: torch.Tensor, index):
    items = list(index) if isinstance(index, tuple) else [index]
    taken = sum(item is not None and item is not Ellipsis for item in items)
    if sum(isinstance(item, (torch.Tensor, list)) for item in items) > 1 or any(
        isinstance(i, (list, bool)) for i in items
    ):
        raise run.error(func, "several index tensors, or lists of indices")
    if not any(item is Ellipsis for item in items):
        items.append(Ellipsis)
    result, dim, left = input, 0, input.dim() - taken
    for item in items:
        if item is None:
            result, dim = _moved(run, torch.unsqueeze, result, dim), dim + 1
        elif item is Ellipsis:
            dim += left
        elif isinstance(item, slice):
            result, dim = _slice(run, func, result, dim, item), dim + 1
        elif isinstance(item, torch.Tensor):
            result, dim = _index_of_tensor(run, func, result, dim, item), dim + item.dim()
        else:
            result = _select(
                run, torch.select, result, dim, item if isinstance(item, PaddedSize) else operator.index(item)
            )
    return result


@takes_sizes
def _setitem(run: Run, func: Callable, input: torch.Tensor, index, value):
    if isinstance(index, torch.Tensor) and index.dtype == torch.bool and not isinstance(value, torch.Tensor):
        return pointwise(run, torch.Tensor.masked_fill_, input, index, value)
    if any(isinstance(item, torch.Tensor) for item in leaves_of(index)):
        raise run.error(func, "index tensors")
    part = _getitem(run, func, input, index)
    if part is not input and part._base is None:
        raise run.error(func, "a place that is counted from the end of a padded dim")
    given = [run.dims_of(value)] if isinstance(value, torch.Tensor) else []
    check_write(run, func, part, run.broadcast(func, [run.dims_of(part), *given]))
    part[...] = value


def _gather(run: Run, func: Callable, input: torch.Tensor, dim: int, index: torch.Tensor, **kwargs):
    dims, index_dims = run.dims_of(input), run.dims_of(index)
    for i, (e, other) in enumerate(zip(dims, index_dims)):
        if i != dim % len(dims) and e != other and (is_padded(e) or is_padded(other)):
            raise run.error(func, "an index that is not padded as the tensor is")
    return run.mark(func(input, dim, index, **kwargs), index_dims)


def _cat(run: Run, func: Callable, tensors, dim: int = 0):
    shapes = [run.dims_of(t) for t in tensors]
    dim %= len(shapes[0])
    *heads, last = [dims[dim] for dims in shapes]
    if any(map(is_padded, heads)) or (is_padded(last) and len(last) > 1):
        raise run.error(func, "padding that comes before other elements")
    rest = run.broadcast(func, [[*dims[:dim], plain(1), *dims[dim + 1 :]] for dims in shapes])
    extent = plain(sum(map(size_of, heads)) + size_of(last))
    if is_padded(last):
        (factor,), before = last, sum(map(size_of, heads))
        extent = (Factor(factor.size + before, factor.label, factor.offset + before),)
    return run.mark(func(tensors, dim), [*rest[:dim], extent, *rest[dim + 1 :]])


def _stack(run: Run, func: Callable, tensors, dim: int = 0):
    dims = run.broadcast(func, [run.dims_of(t) for t in tensors])
    dim %= len(dims) + 1
    return run.mark(func(tensors, dim), [*dims[:dim], plain(len(tensors)), *dims[dim:]])


def _triangle(run: Run, func: Callable, input: torch.Tensor, diagonal: int = 0):
    return run.mark(func(input, diagonal), run.dims_of(input))


RULES = {
    **dict.fromkeys(_MADE, _made),
    **dict.fromkeys(_RESHAPED, _reshaped),
    **dict.fromkeys(_MOVED, _moved),
    **dict.fromkeys(_ALONG, _along),
    **dict.fromkeys(_PREFIXES, _prefixes),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), _expanded),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    **dict.fromkeys(("tril", "triu"), _triangle),
    "arange": _arange,
    "gather": _gather,
    "index_select": _index_select,
    "narrow": _narrow,
    "repeat": _repeated,
    "select": _select,
    "stack": _stack,
    "__iter__": _iter,
    "__getitem__": _getitem,
    "__setitem__": _setitem,
}
