"""The extent of a dim of a padded tensor: its parts, and which of them are padded."""

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence

import torch


@dataclasses.dataclass(frozen=True)
class Factor:
    """A part of a dim: `size` elements; in a padded part the first `n + offset` exist (n: the label's true size)."""

    size: int
    label: str | None = None
    offset: int = 0


# The parts of a dim, the outermost first. A dim without merged dims has one.
Extent = tuple[Factor, ...]


def plain(size: int) -> Extent:
    """The extent of a dim without padding."""
    return (Factor(size),)


def merged(factors: Sequence[Factor]) -> Extent:
    """The extent of these parts, in the one form that equal extents have."""
    result: list[Factor] = []
    for factor in factors:
        if factor.label is None and result and result[-1].label is None:
            result[-1] = Factor(result[-1].size * factor.size)
        elif factor.label is not None or factor.size != 1:
            result.append(factor)
    return tuple(result) or plain(1)


def size_of(extent: Extent) -> int:
    """The number of elements with the padding."""
    return math.prod(factor.size for factor in extent)


def is_padded(extent: Extent) -> bool:
    """Whether there is padding in the dim."""
    return any(factor.label is not None for factor in extent)


def labels_of(dims: Sequence[Extent]) -> list[str]:
    """The labels of the dims that are padded."""
    return sorted({factor.label for extent in dims for factor in extent if factor.label is not None})


def describe(dims: Sequence[Extent]) -> str:
    """The shape as text: `(2, 8 [length], 4)`."""
    texts = [f"{size_of(e)} [{'*'.join(labels_of([e]))}]" if is_padded(e) else str(size_of(e)) for e in dims]
    return f"({', '.join(texts)})"


def regroup(dims: Sequence[Extent], sizes: Sequence[int]) -> tuple[Extent, ...] | None:
    """The extents of dims after a reshape to `sizes`; None if it would cut a padded part in pieces."""
    left = [factor for extent in dims for factor in extent if factor.label is not None or factor.size != 1]
    result = []
    for size in sizes:
        taken: list[Factor] = []
        while size > 1 or (left and left[0].size == 1):
            factor = left.pop(0)
            if factor.size == 0:
                return None
            if size % factor.size == 0:
                taken.append(factor)
                size //= factor.size
            elif factor.label is None and factor.size % size == 0:
                taken.append(Factor(size))
                left.insert(0, Factor(factor.size // size))
                size = 1
            else:
                return None
        result.append(merged(taken))
    return tuple(result)


def _unary(name: str) -> Callable:
    def refuse(self):
        raise self.error(name)

    return refuse


def _binary(name: str) -> Callable:
    def refuse(self, other, *_):
        # A tensor decides: with one, arithmetic uses the true size.
        if isinstance(other, torch.Tensor):
            return NotImplemented
        raise self.error(name)

    return refuse


def _comparison(compare: Callable) -> Callable:
    def run(self, other):
        if not isinstance(other, int):
            return NotImplemented
        true = compare(self.true, other.true if isinstance(other, PaddedSize) else int.__index__(other))
        if true != compare(int.__index__(self), int.__index__(other)):
            raise self.error(f"a comparison with {other!r}, which the padding decides,")
        return true

    return run


class PaddedSize(int):
    """The size of a padded dim, as `shape` gives it.

    As a size it includes the padding. With a tensor (`total / size`) it is the true size. Products, sums and
    differences with ints stay such sizes; other results that would be a plain number raise NotImplementedError.
    `range`, `math.log` and NumPy use the number with the padding; nothing can prevent that.
    """

    def __new__(cls, extent: Extent, run):
        self = super().__new__(cls, size_of(extent))
        self.extent = extent
        self.run = run
        return self

    @property
    def true(self) -> int:
        """The true size."""
        return self.run.true_size(self.extent)

    def error(self, what: str) -> NotImplementedError:
        """The error of a computation with it."""
        return NotImplementedError(
            f"bucketed: {what} of the size of a dim padded for {labels_of([self.extent])} would give a number that "
            "depends on the padding; compute with it beside a tensor, or pass the number to the function as a tensor"
        )

    def _with_factors(self, other) -> "PaddedSize | int":
        if isinstance(other, torch.Tensor) or not isinstance(other, int):
            return NotImplemented
        factors = other.extent if isinstance(other, PaddedSize) else plain(other)
        return PaddedSize(merged((*self.extent, *factors)), self.run) if other else 0

    def _moved(self, by) -> "PaddedSize":
        if isinstance(by, torch.Tensor):
            return NotImplemented
        if isinstance(by, PaddedSize) or not isinstance(by, int) or len(self.extent) != 1:
            raise self.error("a sum")
        (factor,) = self.extent
        return PaddedSize((Factor(factor.size + by, factor.label, factor.offset + by),), self.run)

    def __sub__(self, other):
        if isinstance(other, PaddedSize):
            raise self.error("a difference")
        return NotImplemented if isinstance(other, torch.Tensor) else self._moved(-other)

    def __repr__(self):
        return f"{int.__repr__(self)} (true: {self.true})"

    __mul__ = __rmul__ = _with_factors
    __add__ = __radd__ = _moved
    __hash__ = int.__hash__
    __str__ = __repr__

    def __bool__(self):
        return self != 0


for _name in ("lt", "le", "eq", "ne", "gt", "ge"):
    setattr(PaddedSize, f"__{_name}__", _comparison(getattr(operator, _name)))
for _name in ("neg", "pos", "abs", "invert", "int", "float", "complex", "trunc", "floor", "ceil", "round"):
    setattr(PaddedSize, f"__{_name}__", _unary(_name))
for _name in ("truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift", "and", "or", "xor"):
    setattr(PaddedSize, f"__{_name}__", _binary(_name))
    setattr(PaddedSize, f"__r{_name}__", _binary(_name))
PaddedSize.__rsub__ = _binary("a difference")


class PaddedShape(tuple):
    """A shape with PaddedSize in it; torch.Size would make a plain number of them in numel()."""

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self)
