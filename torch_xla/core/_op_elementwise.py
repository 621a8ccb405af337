"""Operations element by element: a part of torch_xla.core.xla_builder.Op. Like XLA they promote no types."""

from collections.abc import Callable

import torch


def _pairwise(name: str, function: Callable) -> Callable:
    def method(self: "OpElementwise", other: "OpElementwise"):
        if self.op.dtype != other.op.dtype:
            raise TypeError(
                f"{name} needs operands of one type, but got {self.shape().dtype} and {other.shape().dtype}; use cast()"
            )
        return type(self)(function(self.op, other.op))

    return method


def divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """XLA's division: integers are truncated towards zero."""
    return a / b if a.is_floating_point() or a.is_complex() else torch.div(a, b, rounding_mode="trunc")


def leading_zeros(tensor: torch.Tensor) -> torch.Tensor:
    """The number of zero bits before the first 1, for integers. Raises TypeError for other dtypes."""
    kind = tensor.dtype
    if kind.is_floating_point or kind.is_complex or kind == torch.bool:
        raise TypeError(f"clz() counts bits of integers, but got {kind}")
    number = tensor.view(torch.int64) if kind == torch.uint64 else tensor.to(torch.int64)
    rest, left = number, torch.full_like(number, torch.iinfo(kind).bits)
    for step in (32, 16, 8, 4, 2, 1):
        higher = rest >> step
        left = torch.where(higher > 0, left - step, left)
        rest = torch.where(higher > 0, higher, rest)
    return torch.where(number < 0, 0, left - rest.clamp(min=0)).to(kind)


class OpElementwise:
    """Arithmetic, comparisons, functions of one number. The class with these methods is made from a tensor."""

    op: torch.Tensor
    __hash__ = None  # == is an operation

    def select(self, true_value, false_value):
        return type(self)(torch.where(self.op, true_value.op, false_value.op))

    def clamp(self, min_value, max_value):
        return type(self)(torch.clamp(self.op, min_value.op, max_value.op))

    def scalar_like(self, value):
        return type(self)(torch.full_like(self.op, value))

    def zeros_like(self):
        return self.scalar_like(0)

    def ones_like(self):
        return self.scalar_like(1)

    def clz(self):
        return type(self)(leading_zeros(self.op))


# The names of methods and of torch's functions.
_PAIRWISE = [
    *(("__add__", "add"), ("__sub__", "sub"), ("__mul__", "mul"), ("__matmul__", "matmul"), ("__pow__", "pow")),
    *(("__mod__", "fmod"), ("__and__", "bitwise_and"), ("__or__", "bitwise_or"), ("__xor__", "bitwise_xor")),
    *(("__eq__", "eq"), ("__ne__", "ne"), ("__le__", "le"), ("__lt__", "lt"), ("__ge__", "ge"), ("__gt__", "gt")),
    *(("__lshift__", "bitwise_left_shift"), ("__rshift__", "bitwise_right_shift")),
    *(("atan2", "atan2"), ("max", "maximum"), ("min", "minimum")),
]
_UNARY = [
    *("acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor"),
    *("log", "log1p", "sqrt", "real", "imag", "conj", "rsqrt", "sin", "sinh", "tan", "tanh"),
]


def _elementwise(function: Callable) -> Callable:
    def method(self: OpElementwise):
        return type(self)(function(self.op))

    return method


for _name, _function in _PAIRWISE:
    setattr(OpElementwise, _name, _pairwise(_name.strip("_"), getattr(torch, _function)))
OpElementwise.__truediv__ = _pairwise("truediv", divide)
for _name in _UNARY:
    setattr(OpElementwise, _name, _elementwise(getattr(torch, _name)))
OpElementwise.__neg__ = _elementwise(torch.neg)
OpElementwise.__invert__ = OpElementwise.__not__ = _elementwise(torch.bitwise_not)
OpElementwise.erfinf = _elementwise(torch.erfinv)  # the original's name
