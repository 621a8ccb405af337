"""One call of a bucketed function: its padded dims, masks of existing elements, and the choice of a rule for each call.

Rules keep to this: padding holds values that true elements have or could have, at first copies of the first element. So
functions of single elements, rows or images compute nothing new there: no new nan, no index out of range, and zero
gradients stay zero. Only functions that mix elements along a padded dim need a mask.
"""

import functools
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import resolve_name, TorchFunctionMode

from ... import _notebooks
from .extents import describe, Extent, Factor, is_padded, PaddedShape, PaddedSize, plain, size_of

# In these modules a function's last name identifies it.
_MODULES = ("torch", "torch.Tensor", "torch.nn.functional", "torch.special", "torch.functional")
_LIBRARIES = (os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(__file__)))


# They may call the user's functions again, with padding inside.
_GRADIENTS = (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad)
_signature_of = functools.cache(inspect.signature)


@functools.cache
def key_of(func: Callable) -> str:
    """The key of a function's rule: `add` for torch.add, Tensor.add and Tensor.add_."""
    name = resolve_name(func)
    if name is None:
        return f"{getattr(func, '__module__', '')}.{getattr(func, '__name__', func)}"
    module, _, last = name.removesuffix(".__get__").rpartition(".")
    if module not in _MODULES:
        return name
    return last if last.endswith("__") else last.removesuffix("_")


def is_in_place(func: Callable) -> bool:
    """Whether the function writes into its first operand, by PyTorch's rule of names."""
    name = func.__name__
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def leaves_of(value: Any) -> Iterator[Any]:
    """The leaves of nested lists, tuples, dicts and slices."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves_of(item)
    elif isinstance(value, dict):
        yield from leaves_of(list(value.values()))
    elif isinstance(value, slice):
        yield from (value.start, value.stop, value.step)
    else:
        yield value


def with_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """The nest with `change(leaf)` in place of each leaf."""
    if isinstance(value, (list, tuple)):
        items = [with_leaves(item, change) for item in value]
        return (
            type(value)(*items) if hasattr(value, "_fields") else list(items) if type(value) is list else tuple(items)
        )
    if isinstance(value, dict):
        return {key: with_leaves(item, change) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(with_leaves(item, change) for item in (value.start, value.stop, value.step)))
    return change(value)


def padded_ints(value: Any) -> Any:
    """`value` with plain ints, which include the padding, for sizes."""
    return with_leaves(value, lambda v: int.__index__(v) if isinstance(v, PaddedSize) else v)


def takes_sizes(rule: Callable) -> Callable:
    """Marks a rule that accepts PaddedSize among its arguments; other rules refuse it."""
    rule.takes_sizes = True
    return rule


def _users_line() -> str:
    frame = sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    return f" at {_notebooks.place(frame.f_code.co_filename, frame.f_lineno)}" if frame else ""


def is_marked(tensor: Any) -> bool:
    """Whether a call has padded it."""
    return hasattr(tensor, "_torch_xla_padded")


class Run(TorchFunctionMode):
    """One call. Within it `rules` run functions of padded tensors; it belongs to one thread, as PyTorch's modes do.

    `sizes` has the true size of each label. Rules are called outside of the mode: `rule(run, func, *args, **kwargs)`.
    """

    def __init__(self, rules: Mapping[str, Callable], sizes: Mapping[str, int]):
        super().__init__()
        self._rules = rules
        self._sizes = sizes
        self._masks: dict[tuple, torch.Tensor] = {}
        self._counts: dict[tuple, torch.Tensor] = {}

    # Facts about tensors, kept with the tensor, so that a padded tensor that outlives its call is recognized.

    def dims_of(self, tensor: torch.Tensor) -> tuple[Extent, ...]:
        """The extents of a tensor's dims. Raises RuntimeError for a padded tensor of an earlier call."""
        run, dims = getattr(tensor, "_torch_xla_padded", (self, None))
        if run is not self:
            raise RuntimeError(f"bucketed: a padded tensor of another call is used{_users_line()}; return it instead")
        return dims or tuple(plain(size) for size in tensor.shape)

    def is_padded(self, tensor: Any) -> bool:
        """Whether a dim of it is padded."""
        return isinstance(tensor, torch.Tensor) and is_marked(tensor) and bool(self.dims_of(tensor))

    def mark(self, tensor: torch.Tensor, dims: Sequence[Extent]) -> torch.Tensor:
        """The tensor, marked with these dims."""
        if tuple(map(size_of, dims)) != tuple(tensor.shape):
            raise RuntimeError(f"bucketed: shape {tuple(tensor.shape)} where {describe(dims)} was expected")
        if any([is_padded(extent) and self.true_size(extent) >= 0 for extent in dims]):
            tensor._torch_xla_padded = (self, tuple(dims))
        return tensor

    def mark_all(self, results: Any, dims: Sequence[Extent]) -> Any:
        """As mark(), for all tensors of a result."""
        for leaf in leaves_of(results):
            if isinstance(leaf, torch.Tensor):
                self.mark(leaf, dims)
        return results

    def shape_of(self, tensor: torch.Tensor) -> PaddedShape:
        """The shape, with PaddedSize for dims that are padded."""
        dims = self.dims_of(tensor)
        return PaddedShape([PaddedSize(e, self) if is_padded(e) else size_of(e) for e in dims])

    # Existing elements.

    def true_size(self, extent: Extent) -> int:
        """The number of elements without the padding. Raises ValueError if more is cut off than exists."""
        sizes = [
            factor.size if factor.label is None else self._sizes[factor.label] + factor.offset for factor in extent
        ]
        if min(sizes) < 0:
            raise ValueError(
                f"bucketed: {-min(sizes)} more elements are cut off a padded dim than it has{_users_line()}"
            )
        return math.prod(sizes)

    def _true_label(self, factor: Factor, device: torch.device) -> torch.Tensor:
        """true_size() as a tensor, an input of the program."""
        key = (factor.label, device)
        if key not in self._counts:
            self._counts[key] = torch.tensor(self._sizes[factor.label]).to(device)
        count = self._counts[key]
        return count + factor.offset if factor.offset else count

    def count(self, dims: Sequence[Extent], device: torch.device) -> torch.Tensor | int:
        """The number of elements of these dims without the padding; for padded dims a 0-d int64 tensor."""
        factors = [factor for extent in dims for factor in extent]
        known = math.prod(factor.size for factor in factors if factor.label is None)
        counts = [self._true_label(factor, device) for factor in factors if factor.label is not None]
        return math.prod(counts, start=known)

    def _mask_of_dim(self, extent: Extent, device: torch.device) -> torch.Tensor:
        key = (extent, device)
        if key not in self._masks:
            sizes = [factor.size for factor in extent]
            mask = torch.ones((), dtype=torch.bool, device=device)
            for i, factor in enumerate(extent):
                if factor.label is not None:
                    exists = torch.arange(factor.size, device=device) < self._true_label(factor, device)
                    mask = mask & exists.view([-1 if j == i else 1 for j in range(len(sizes))])
            self._masks[key] = mask.expand(sizes).reshape(-1)
        return self._masks[key]

    def mask(self, dims: Sequence[Extent], device: torch.device) -> torch.Tensor:
        """A bool mask of existing elements, broadcast to these dims."""
        mask = torch.ones((), dtype=torch.bool, device=device)
        for i, extent in enumerate(dims):
            if is_padded(extent):
                mask = mask & self._mask_of_dim(extent, device).view([-1 if j == i else 1 for j in range(len(dims))])
        return mask

    def filled(self, tensor: torch.Tensor, value: float, along: Sequence[int] | None = None) -> torch.Tensor:
        """The tensor with `value` for its padding, of all dims or of those `along`. It gets no gradient there."""
        dims = self.dims_of(tensor)
        chosen = [e if along is None or i in along else plain(size_of(e)) for i, e in enumerate(dims)]
        if not any(map(is_padded, chosen)):
            return tensor
        return torch.where(self.mask(chosen, tensor.device), tensor, value)

    def repeated(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """The tensor with copies of the first element along `dim` for its padding."""
        dims = self.dims_of(tensor)
        chosen = [extent if i == dim else plain(size_of(extent)) for i, extent in enumerate(dims)]
        first = tensor.detach().narrow(dim, 0, 1)
        return self.mark(torch.where(self.mask(chosen, tensor.device), tensor, first), dims)

    # Combining dims.

    def same(self, extents: Sequence[Extent]) -> Extent | None:
        """The extent of a dim that these are broadcast to; None if padding meets another extent."""
        wide = {e for e in extents if e != plain(1)}
        return next(iter(wide), plain(1)) if len(wide) < 2 else None

    def broadcast(self, func: Callable, shapes: Sequence[Sequence[Extent]]) -> tuple[Extent, ...]:
        """The dims that these are broadcast to."""
        rank = max(map(len, shapes), default=0)
        aligned = [(plain(1),) * (rank - len(dims)) + tuple(dims) for dims in shapes]
        result = []
        for extents in zip(*aligned):
            extent = self.same(extents)
            if extent is None and any(map(is_padded, extents)):
                raise self.error(func, f"padded dims that meet others: {' and '.join(map(describe, shapes))}")
            # PyTorch checks dims without padding.
            result.append(extent or max(extents, key=size_of))
        return tuple(result)

    # Calls.

    def text(self, tensor: torch.Tensor) -> str:
        """The shape of a tensor for messages."""
        return describe(self.dims_of(tensor))

    def error(self, func: Callable, what: str | None = None) -> NotImplementedError:
        """The error of a call that cannot be made: with `what`, else that there is no rule."""
        name = resolve_name(func) or getattr(func, "__name__", str(func))
        return NotImplementedError(
            f"bucketed: {name} has no rule for {what or 'padded dims'}{_users_line()}; write it with functions that "
            "have one, give it tensors without these dims, or call it outside of the bucketed function"
        )

    def _refuse(self, func: Callable, args: tuple, kwargs: dict) -> NotImplementedError:
        leaves = list(leaves_of((args, kwargs)))
        shapes = [self.text(leaf) for leaf in leaves if self.is_padded(leaf)]
        sizes = [f"the size {leaf!r}" for leaf in leaves if isinstance(leaf, PaddedSize)]
        return self.error(func, f"padded dims: {', '.join(shapes + sizes)}")

    def _is_size(self, leaf: Any) -> bool:
        if not isinstance(leaf, PaddedSize):
            return False
        if leaf.run is not self:
            raise RuntimeError(f"bucketed: the size of a padded dim of another call is used{_users_line()}")
        return True

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch._C._functorch.peek_interpreter_stack() is not None:
            raise self.error(func, "calls within the transforms of torch.func, which hide padding")
        leaves = list(leaves_of((args, kwargs)))
        has_sizes = any(map(self._is_size, leaves))
        if not (has_sizes or func in _GRADIENTS or any(map(self.is_padded, leaves))):
            return func(*args, **kwargs)
        rule = self._rules.get(key_of(func))
        refuses = has_sizes and not hasattr(rule, "takes_sizes")
        if rule is None or refuses or kwargs.get("out") is not None:
            raise self._refuse(func, args, kwargs)
        try:
            _signature_of(rule).bind(self, func, *args, **kwargs)
        except TypeError:
            raise self._refuse(func, args, kwargs) from None
        return rule(self, func, *args, **kwargs)

    def run_body(self, func: Callable, *args, **kwargs):
        """Runs a Python function of PyTorch, with rules for the functions that it calls."""
        # The check for modes, at the head of these functions, would come back here.
        checks = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
        names = {**func.__globals__, **dict.fromkeys(checks, lambda *_: False)}
        body = type(func)(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
        body.__kwdefaults__ = func.__kwdefaults__
        with self:
            return body(*args, **kwargs)
