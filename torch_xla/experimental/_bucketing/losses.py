"""Rules of losses: padding rows are ignored, and means are over existing elements."""

from collections.abc import Callable, Sequence

import torch

from .extents import Extent, is_padded
from .reductions import wide
from .run import Run


def _reduce(run: Run, losses: torch.Tensor, dims: Sequence[Extent], reduction: str) -> torch.Tensor:
    """The losses of dims that may be padded, by a `reduction` of PyTorch's."""
    run.mark(losses, dims)
    if reduction == "none":
        return losses
    total = run.filled(losses, 0).sum(dtype=wide(losses.dtype))
    if reduction != "sum":
        total = total / run.count(dims[:1] if reduction == "batchmean" else dims, losses.device)
    return total.to(losses.dtype)


def _classes(
    run: Run,
    func: Callable,
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average=None,
    ignore_index: int = -100,
    reduce=None,
    reduction: str = "mean",
    **kwargs,
):
    """cross_entropy and nll_loss: targets of padding rows become the ignored index."""
    dims, classes = run.dims_of(input), min(1, input.dim() - 1)
    if is_padded(dims[classes]) or size_average is not None or reduce is not None:
        raise run.error(func, "padded classes, or size_average and reduce")
    rows = (*dims[:classes], *dims[classes + 1 :])
    if target.is_floating_point():
        run.broadcast(func, [dims, run.dims_of(target)])
        losses = func(input, target, weight, reduction="none", **kwargs)
        # Probabilities: PyTorch's mean divides by the number of rows, for any weights.
        return _reduce(run, losses, rows, reduction)
    if run.broadcast(func, [rows, run.dims_of(target)]) != rows or run.dims_of(target) != rows:
        raise run.error(func, f"targets {run.text(target)} that are not padded as the input {run.text(input)}")
    target = run.filled(target, ignore_index)
    result = func(input, target, weight, ignore_index=ignore_index, reduction=reduction, **kwargs)
    return run.mark(result, rows) if reduction == "none" else result


def _elements(run: Run, func: Callable, input: torch.Tensor, target: torch.Tensor, *args, reduction="mean", **kwargs):
    """Losses of single elements."""
    operands = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
    # A weight may be part of the mean, except for binary losses.
    weighted = kwargs.get("weight") is not None and not func.__name__.startswith("binary")
    if (
        len(operands) < len(args)
        or weighted
        or any(kwargs.get(name) is not None for name in ("size_average", "reduce"))
    ):
        raise run.error(func, "numbers by position, weights, size_average and reduce")
    dims = run.broadcast(func, [run.dims_of(t) for t in (input, target, *operands)])
    return _reduce(run, func(input, target, *args, reduction="none", **kwargs), dims, reduction)


_OF_ELEMENTS = """
mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div
soft_margin_loss poisson_nll_loss gaussian_nll_loss
""".split()

RULES = {
    **dict.fromkeys(("cross_entropy", "nll_loss"), _classes),
    **dict.fromkeys(_OF_ELEMENTS, _elements),
}
