"""Runs functions of tensors of any size by programs of few sizes: pads dims and keeps padding out of results."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from .._api import device as current_device
from ._bucketing import losses, pointwise, products, reductions, shapes
from ._bucketing.extents import Factor, PaddedSize, plain
from ._bucketing.run import Run

_RULES = {**pointwise.RULES, **shapes.RULES, **reductions.RULES, **products.RULES, **losses.RULES}


def _bucket(label: str, size: int, sizes: Sequence[int] | None) -> int:
    """The padded size: the smallest sufficient one of `sizes`, or the next power of two."""
    if size == 0:
        raise ValueError(f"bucketed: a dim of {label!r} has no elements, and one is needed")
    if sizes is None:
        return 1 << (size - 1).bit_length()
    bucket = min((s for s in sizes if s >= size), default=None)
    if bucket is None:
        raise ValueError(f"bucketed: size {size} of {label!r} is above the largest bucket, {max(sizes)}")
    return bucket


def _padded(tensor: torch.Tensor, wanted: Mapping[int, int], device: torch.device) -> torch.Tensor:
    """The tensor on the device, padded by the host with copies of its first elements to the wanted sizes."""
    for dim, size in wanted.items():
        if size > tensor.shape[dim]:
            tensor = tensor.cpu()
            first = tensor.narrow(dim, 0, 1)
            copies = [size - tensor.shape[dim] if i == dim else -1 for i in range(tensor.dim())]
            tensor = torch.cat([tensor, first.expand(copies)], dim)
    return tensor.to(device) if tensor.device.type == "cpu" else tensor


def _cut(run: Run, value: Any) -> Any:
    """A result without the padding: a view, so that no program depends on the true size, unless dims were merged."""
    if isinstance(value, PaddedSize):
        return value.true
    if not run.is_padded(value):
        return value
    dims = run.dims_of(value)
    parts = [factor for extent in dims for factor in extent]
    value = value if len(parts) == len(dims) else value.view([factor.size for factor in parts])
    for i, factor in enumerate(parts):
        value = value.narrow(i, 0, run.true_size((factor,)))
    return value if len(parts) == len(dims) else value.reshape([run.true_size(extent) for extent in dims])


class _Arguments:
    """The padded dims of arguments, and their sizes."""

    def __init__(self, function: Callable, dims: Mapping, sizes: Mapping | None):
        self.signature = inspect.signature(function.forward if isinstance(function, torch.nn.Module) else function)
        self.dims = dims
        self.sizes = dict(sizes or {})
        for name in dims:
            if name not in self.signature.parameters:
                raise ValueError(f"bucketed: {name!r} is no parameter of the function: {self.signature}")
        labels = {label for labels in dims.values() for label in labels}
        for label in self.sizes:
            if label not in labels or not self.sizes[label]:
                raise ValueError(f"bucketed: sizes of {label!r}, of {sorted(labels)}: {self.sizes[label]}")

    def _tensors(self, arguments: Mapping) -> dict[str, torch.Tensor]:
        tensors = {name: arguments[name] for name in self.dims if arguments.get(name) is not None}
        for name, tensor in tensors.items():
            if not isinstance(tensor, torch.Tensor):
                raise TypeError(f"bucketed: argument {name!r} must be a tensor, not {type(tensor).__name__}")
        return tensors

    def _true_sizes(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
        true: dict[str, int] = {}
        for name, tensor in tensors.items():
            for label, dim in self.dims[name].items():
                size = tensor.shape[dim]
                if true.setdefault(label, size) != size:
                    raise ValueError(
                        f"bucketed: dim {dim} of {name!r} has size {size}, other dims of {label!r} {true[label]}"
                    )
        return true

    def pad(self, args: tuple, kwargs: dict) -> tuple[Run, inspect.BoundArguments]:
        """A run and its arguments."""
        bound = self.signature.bind(*args, **kwargs)
        tensors = self._tensors(bound.arguments)
        true = self._true_sizes(tensors)
        buckets = {label: _bucket(label, size, self.sizes.get(label)) for label, size in true.items()}
        run = Run(_RULES, true)
        for name, tensor in tensors.items():
            labels = {dim % tensor.dim(): label for label, dim in self.dims[name].items()}
            padded = _padded(tensor, {dim: buckets[label] for dim, label in labels.items()}, current_device())
            # A view, so that no write into it is lost: rules refuse writes into memory without padding.
            padded = padded.view_as(padded)
            extents = [
                (Factor(size, labels[dim]),) if size > 1 and dim in labels else plain(size)
                for dim, size in enumerate(padded.shape)
            ]
            bound.arguments[name] = run.mark(padded, extents)
        return run, bound


def bucketed(
    function: Callable,
    dims: Mapping[str, Mapping[str, int]],
    sizes: Mapping[str, Sequence[int]] | None = None,
) -> Callable:
    """The function with dims of its arguments padded to few sizes: one program for each, results of the true sizes.

    Args:
        function: a function or module of tensors, preferably a whole step: forward, loss, backward and optimizer.
            Inside,
        `shape` gives padded sizes (PaddedSize), and functions of PyTorch leave out the padding.
        dims: by name of a parameter, the dims that are padded: `{"ids": {"length": 1}, "labels": {"length": 1}}`. Dims
            of one label have one size. A parameter that is None or not given is left out.
        sizes: the buckets by label, `{"length": [64, 128, 256]}`; without them the powers of two.

    Returns a function of the same parameters. The host pads, with copies of the first elements, and uploads tensors of
    the CPU; a tensor on the device that has not the size of a bucket goes to the host and back, with a wait. Tensors
    among the results are views of the true sizes.

    A call raises ValueError for sizes of one label that differ, for a size above the largest bucket, and for dims
    without elements; TypeError for arguments in `dims` that are not tensors; NotImplementedError for a function of
    PyTorch without a rule for padded dims. Threads may call it at the same time.
    """
    arguments = _Arguments(function, dims, sizes)

    @functools.wraps(function.forward if isinstance(function, torch.nn.Module) else function)
    def run_padded(*args, **kwargs):
        run, bound = arguments.pad(args, kwargs)
        # Only on this thread: functions that the backward calls again are padded as well.
        with torch.autograd.set_multithreading_enabled(False), run:
            result = function(*bound.args, **bound.kwargs)
        return tree_map(functools.partial(_cut, run), result)

    return run_padded
