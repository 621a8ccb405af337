"""Rules of functions over all elements along a dim: padding first becomes their neutral element."""

import math
from collections.abc import Callable

import torch

from .extents import Extent, is_padded, plain
from .pointwise import pointwise
from .run import padded_ints, Run, takes_sizes
from .shapes import picked, probe, probed


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums of `dtype` numbers."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _neutral(name: str, dtype: torch.dtype) -> float:
    """The neutral element of the function."""
    if name in ("sum", "nansum", "count_nonzero", "any", "mean"):
        return 0
    if name in ("prod", "all"):
        return 1
    largest = name in ("amax", "max", "argmax", "logsumexp", "softmax", "log_softmax", "topk")
    if dtype.is_floating_point:
        return -math.inf if largest else math.inf
    if dtype == torch.bool:
        return not largest
    info = torch.iinfo(dtype)
    return info.min if largest else info.max


def _reduction(func: Callable, dims: tuple[Extent, ...], *args, **kwargs) -> tuple[list[int], tuple[Extent, ...]]:
    """The padded dims that the function reduces, and the extents of its result."""
    found = probe(func, dims, *args, **kwargs)
    return [i for i, extent in enumerate(dims) if is_padded(extent) and i not in found], picked(dims, found)


def _reduce(run: Run, func: Callable, input: torch.Tensor, *args, **kwargs):
    """By the neutral element."""
    dims = run.dims_of(input)
    reduced, left = _reduction(func, dims, *args, **kwargs)
    name = func.__name__
    if reduced and name in ("amax", "amin", "max", "min") and 0 in (run.true_size(dims[i]) for i in reduced):
        raise IndexError(f"{name}(): Expected reduction over a dim that has elements, and none is left of a padded one")
    result = func(run.filled(input, _neutral(name, input.dtype), reduced), *args, **kwargs)
    return run.mark_all(result, left)


def _extreme(run: Run, func: Callable, input: torch.Tensor, *args, **kwargs):
    """max, min: of two tensors, of one, or along a dim with the places."""
    if isinstance(args[0] if args else kwargs.get("other"), torch.Tensor):
        return pointwise(run, func, input, *args, **kwargs)
    return _place(run, func, input, *args, **kwargs) if args or kwargs else _reduce(run, func, input)


def _place(run: Run, func: Callable, input: torch.Tensor, *args, **kwargs):
    """Results that are places: correct if the places do not count padding."""
    dims = run.dims_of(input)
    reduced, left = _reduction(func, dims, *args, **kwargs)
    flat = not args and kwargs.get("dim") is None
    if any(len(dims[i]) > 1 for i in reduced) or (flat and len(dims) > 1):
        raise run.error(func, "places in padded dims that are merged")
    name = func.__name__.removeprefix("arg")
    return run.mark_all(func(run.filled(input, _neutral(name, input.dtype), reduced), *args, **kwargs), left)


def _mean(run: Run, func: Callable, input: torch.Tensor, *args, **kwargs):
    dims = run.dims_of(input)
    found = probe(func, dims, *args, **kwargs)
    reduced, left = [i for i in range(len(dims)) if i not in found], picked(dims, found)
    gone = [dims[i] for i in reduced]
    if not any(map(is_padded, gone)):
        return run.mark(func(input, *args, **kwargs), left)
    # The mean with zeros for padding; 16-bit numbers stay in 32 bits until the count is corrected.
    dtype = kwargs.pop("dtype", None) or input.dtype
    total = torch.sum(run.filled(input, 0, reduced), *args, **kwargs, dtype=wide(dtype))
    return run.mark((total / run.count(gone, input.device)).to(dtype), left)


def _moments(run: Run, func: Callable, input: torch.Tensor, dim=None, unbiased=True, keepdim=False, *, correction=None):
    """var, std, and with the mean before them."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    correction = int(unbiased) if correction is None else correction
    dims = run.dims_of(input)
    every = tuple(range(len(dims)))
    reduced = every if dim is None else tuple(d % len(dims) for d in ((dim,) if isinstance(dim, int) else dim)) or every
    gone = [dims[i] for i in reduced]
    if not any(map(is_padded, gone)):
        return run.mark_all(
            func(input, dim, correction=correction, keepdim=keepdim), probed(torch.sum, dims, dim, keepdim)
        )
    if input.is_complex():
        raise run.error(func, "complex numbers of padded dims")
    number = run.count(gone, input.device)
    dtype, input = input.dtype, run.mark(input.to(wide(input.dtype)), dims)
    mean = run.filled(input, 0, reduced).sum(reduced, keepdim=True) / number
    deviation = run.filled(run.mark(input - mean, dims), 0, reduced)
    var = deviation.square().sum(reduced, keepdim=keepdim) / (number - correction).clamp(min=0)
    result = (var.sqrt() if "std" in func.__name__ else var).to(dtype)
    if "mean" not in func.__name__:
        return run.mark(result, probed(torch.sum, dims, dim, keepdim))
    mean = (mean if keepdim else mean.squeeze(reduced)).to(dtype)
    return run.mark_all((result, mean), probed(torch.sum, dims, dim, keepdim))


def _norm(run: Run, func: Callable, input: torch.Tensor, p=None, dim=None, keepdim=False, dtype=None):
    """norm and vector_norm: zeros for padding, where zeros do not count."""
    order = 2 if p is None or isinstance(p, str) else p
    if p == "nuc" or order < 0:
        raise run.error(func, f"the norm {p}")
    dims = run.dims_of(input)
    reduced, left = _reduction(torch.sum, dims, dim, keepdim)
    result = torch.linalg.vector_norm(run.filled(input, 0, reduced), order, dim, keepdim, dtype=dtype)
    return run.mark(result, left)


def _vector_norm(run: Run, func: Callable, input: torch.Tensor, ord=2, dim=None, keepdim=False, *, dtype=None):
    return _norm(run, func, input, ord, dim, keepdim, dtype)


def _linalg_norm(run: Run, func: Callable, A: torch.Tensor, ord=None, dim=None, keepdim=False, *, dtype=None):
    if ord is not None and not isinstance(dim, int):
        raise run.error(func, "the norm of padded matrices")
    return _norm(run, func, A, ord, dim, keepdim, dtype)


def _softmax(run: Run, func: Callable, input: torch.Tensor, dim: int, *args, **kwargs):
    dims = run.dims_of(input)
    dim %= len(dims)
    if not is_padded(dims[dim]):
        return run.mark(func(input, dim, *args, **kwargs), dims)
    filled = run.filled(input, -math.inf, [dim])
    result = run.mark(func(filled, dim, *args, **kwargs), dims)
    # Neither log(0) nor minus infinity for later operations.
    return run.repeated(result, dim)


def _topk(run: Run, func: Callable, input: torch.Tensor, k: int, dim: int = -1, largest=True, sorted=True):
    dims = list(run.dims_of(input))
    dim %= len(dims)
    if is_padded(dims[dim]):
        if not largest or len(dims[dim]) > 1 or k > run.true_size(dims[dim]):
            raise run.error(func, f"the {k} smallest, or too many, of a padded dim")
        input = run.filled(input, _neutral("topk", input.dtype), [dim])
    dims[dim] = plain(k)
    return run.mark_all(func(input, k, dim, largest, sorted), dims)


@takes_sizes
def _layer_norm(run: Run, func: Callable, input: torch.Tensor, normalized_shape, *args, **kwargs):
    dims = run.dims_of(input)
    if any(map(is_padded, dims[len(dims) - len(normalized_shape) :])):
        raise run.error(func, f"the normalization of padded dims {tuple(normalized_shape)}")
    return run.mark(func(input, padded_ints(normalized_shape), *args, **kwargs), dims)


def _batch_norm(
    run: Run,
    func: Callable,
    input,
    running_mean,
    running_var,
    weight=None,
    bias=None,
    training=False,
    momentum=0.1,
    eps=1e-5,
):
    """Statistics of existing elements, in training; the running ones are written in place, as in PyTorch."""
    dims = run.dims_of(input)
    if is_padded(dims[1]):
        raise run.error(func, "padded channels")
    if not training:
        result = func(input, running_mean, running_var, weight, bias, False, momentum, eps)
        return run.mark(result, dims)
    axes = [i for i in range(len(dims)) if i != 1]
    input, dtype = run.mark(input.to(wide(input.dtype)), dims), input.dtype
    var, mean = _moments(run, torch.var_mean, input, axes, correction=0)
    if running_mean is not None:
        number = run.count([dims[i] for i in axes], input.device)
        with torch.no_grad():
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_((var * number / (number - 1)).to(running_var.dtype), momentum)
    shape = [-1 if i == 1 else 1 for i in range(len(dims))]
    result = (input - mean.view(shape)) * (var + eps).rsqrt().view(shape)
    result = result if weight is None else result * weight.view(shape)
    result = result if bias is None else result + bias.view(shape)
    return run.mark(result.to(dtype), dims)


RULES = {
    **dict.fromkeys(("sum", "nansum", "prod", "amax", "amin", "all", "any", "count_nonzero", "logsumexp"), _reduce),
    **dict.fromkeys(("max", "min"), _extreme),
    **dict.fromkeys(("argmax", "argmin"), _place),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _moments),
    **dict.fromkeys(("softmax", "log_softmax"), _softmax),
    **dict.fromkeys(("layer_norm", "rms_norm"), _layer_norm),
    "mean": _mean,
    "norm": _norm,
    "torch.linalg.norm": _linalg_norm,
    "torch.linalg.vector_norm": _vector_norm,
    "topk": _topk,
    "batch_norm": _batch_norm,
}
