"""XLA's operations by their names in the original's builder, for operations of the user's own (xla_op_registry).

An Op stands for a tensor, or a tuple of them, while the operation is recorded. Each method records what it means, by
ATen's operations, so a user's operation fuses with what stands around it. What the methods do stands in
https://openxla.org/xla/operation_semantics; like XLA they promote no types: two operands have to have the same one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _XLAC
from .._api import device as current_device
from ._shapes import Shape, Type
from ._shapes import TORCH_TYPES as _XLA_PT_TYPE_MAP
from ._shapes import XLA_TYPES as _PT_XLA_TYPE_MAP


def _shape_of(value) -> Any:
    if isinstance(value, tuple):
        return tuple(_shape_of(v) for v in value)
    return {"type": Op.from_torch_type(value.dtype), "sizes": tuple(value.shape)}


def _pairwise(name: str, function: Callable) -> Callable:
    def method(self: "Op", other: "Op") -> "Op":
        if self.op.dtype != other.op.dtype:
            raise TypeError(
                f"{name} needs operands of one type, but got {self.shape().dtype} and {other.shape().dtype}; use cast()"
            )
        return Op(function(self.op, other.op))

    return method


def _divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a / b if a.is_floating_point() or a.is_complex() else torch.div(a, b, rounding_mode="trunc")


class Op:
    """A tensor, or a tuple of them, while a user's operation is recorded.

    Args:
        op: a tensor of an xla device, or a tuple of them.
    """

    def __init__(self, op):
        self.op = op

    __hash__ = None  # == is an operation

    def shape(self) -> Shape:
        return Shape(_shape_of(self.op))

    def builder(self) -> torch.device:
        """What constants beside this one are made with."""
        return (self.op[0] if isinstance(self.op, tuple) else self.op).device

    # ---- Shape ----

    def reshape(self, sizes, dimensions=None, inferred_dimension=None) -> "Op":
        op = self.op if dimensions is None else self.op.permute(dimensions)
        sizes = [-1 if i == inferred_dimension else size for i, size in enumerate(sizes)]
        return Op(op.reshape(sizes))

    def broadcast(self, sizes) -> "Op":
        """New dims before the others."""
        return Op(self.op.expand(*sizes, *self.op.shape))

    def broadcast_in_dim(self, sizes, dimensions) -> "Op":
        """Dim i becomes dim dimensions[i] of a tensor of `sizes`."""
        between = [1] * len(sizes)
        for size, dim in zip(self.op.shape, dimensions, strict=True):
            between[dim] = size
        return Op(self.op.reshape(between).expand(*sizes))

    def slice(self, start_indices, limit_indices, strides=None) -> "Op":
        strides = strides or [1] * len(start_indices)
        return Op(self.op[tuple(map(slice, start_indices, limit_indices, strides))])

    def slice_in_dim(self, start_index, limit_index, dimno, stride=1) -> "Op":
        return Op(self.op[(slice(None),) * dimno + (slice(start_index, limit_index, stride),)])

    def _places(self, start_indices, sizes) -> tuple[torch.Tensor, ...]:
        """Indices of a block of `sizes`, which is moved to lie within the tensor."""
        places = []
        for dim, (start, size) in enumerate(zip(start_indices, sizes, strict=True)):
            first = start.op.reshape(()).to(torch.int64).clamp(0, self.op.size(dim) - size)
            along = torch.arange(size, device=self.op.device) + first
            places.append(along.reshape([-1 if d == dim else 1 for d in range(self.op.dim())]))
        return tuple(places)

    def dynamic_slice(self, start_indices, slice_sizes) -> "Op":
        return Op(self.op[self._places(start_indices, slice_sizes)])

    def dynamic_update_slice(self, update, start_indices) -> "Op":
        return Op(self.op.index_put(self._places(start_indices, update.op.shape), update.op))

    def pad(self, value, config) -> "Op":
        """`config`: for each dim the elements before, behind and between; negative ones before and behind cut off."""
        if len(config) != self.op.dim():
            raise ValueError(
                f"a tensor of {self.op.dim()} dims needs as many (low, high, interior), but got {len(config)}"
            )
        op = self.op
        for dim, (_, _, interior) in enumerate(config):
            size = op.size(dim)
            if interior and size > 1:
                sizes = [*op.shape[:dim], (size - 1) * (interior + 1) + 1, *op.shape[dim + 1 :]]
                index = torch.arange(size, device=op.device) * (interior + 1)
                op = value.op.expand(sizes).index_copy(dim, index, op)
        for dim, (low, high, _) in enumerate(config):
            op = op.narrow(dim, max(-low, 0), op.size(dim) - max(-low, 0) - max(-high, 0))
            parts = [
                value.op.expand([n if d == dim else s for d, s in enumerate(op.shape)])
                for n in (max(low, 0), max(high, 0))
            ]
            op = torch.cat([parts[0], op, parts[1]], dim)
        return Op(op)

    def transpose(self, permutation) -> "Op":
        return Op(self.op.permute(permutation))

    def rev(self, dimensions) -> "Op":
        return Op(self.op.flip(dimensions))

    def get_dimension_size(self, dimension) -> "Op":
        return Op.scalar(self.builder(), self.op.size(dimension), Type.S32)

    # ---- Values ----

    def cast(self, to_type) -> "Op":
        return Op(self.op.to(Op.to_torch_type(to_type)))

    def bitcast(self, to_type) -> "Op":
        return Op(self.op.view(Op.to_torch_type(to_type)))

    def select(self, true_value, false_value) -> "Op":
        return Op(torch.where(self.op, true_value.op, false_value.op))

    def clamp(self, min_value, max_value) -> "Op":
        return Op(torch.clamp(self.op, min_value.op, max_value.op))

    def scalar_like(self, value) -> "Op":
        return Op(torch.full_like(self.op, value))

    def zeros_like(self) -> "Op":
        return self.scalar_like(0)

    def ones_like(self) -> "Op":
        return self.scalar_like(1)

    def triangualr_solve(
        self, b, left_side=None, lower=None, unit_diagonal=None, transpose_a=None
    ) -> "Op":  # codespell:ignore
        """X of self @ X = b, or of X @ self = b. The name is the original's."""
        a, upper = (self.op.mT, bool(lower)) if transpose_a else (self.op, not lower)
        return Op(
            torch.linalg.solve_triangular(a, b.op, upper=upper, left=bool(left_side), unitriangular=bool(unit_diagonal))
        )

    # ---- Reductions ----

    def reduce(self, init_value, computation, dimensions) -> "Op":
        """By an associative and commutative function of two Ops, which is applied to halves."""
        kept = [d for d in range(self.op.dim()) if d not in dimensions]
        op = self.op.permute([*kept, *dimensions]).reshape([*(self.op.size(d) for d in kept), -1])
        while op.size(-1) > 1:
            half = op.size(-1) // 2
            combined = computation(Op(op[..., :half]), Op(op[..., half : 2 * half])).op
            op = torch.cat([combined, op[..., 2 * half :]], -1)
        init = init_value.op.expand(op.shape[:-1])
        return computation(Op(init), Op(op[..., 0])) if op.size(-1) else Op(init)

    def reduce_all(self, init_value, computation) -> "Op":
        return self.reduce(init_value, computation, list(range(self.op.dim())))

    # ---- Control flow, tuples ----

    def get_tuple_element(self, index) -> "Op":
        return Op(self.op[index])

    def conditional(self, true_operand, false_operand, true_computation, false_computation) -> "Op":
        """Both are computed, one is taken: self is a Bool of one element."""
        on_true, on_false = Op.call(true_computation, [true_operand]), Op.call(false_computation, [false_operand])
        if not isinstance(on_true.op, tuple):
            return self.select(on_true, on_false)
        return Op(tuple(torch.where(self.op, a, b) for a, b in zip(on_true.op, on_false.op, strict=True)))

    def mkconditional(self, ops, true_fn, false_fn) -> "Op":
        operand = Op.tuple(ops)
        return self.conditional(operand, operand, true_fn, false_fn)

    def while_loop(self, condition_computation, body_computation) -> "Op":
        """One node; self is a tuple."""
        from ..experimental import fori_loop

        def condition(*values):
            return Op.call(condition_computation, map(Op, values)).op

        def body(*values):
            return Op.call(body_computation, map(Op, values)).op

        return Op(fori_loop.while_loop(condition, body, self.op))

    @classmethod
    def mkwhile(cls, ops, condition_fn, body_fn) -> "Op":
        return Op.tuple(ops).while_loop(condition_fn, body_fn)

    @classmethod
    def tuple(cls, ops, builder=None) -> "Op":
        return Op(tuple(op.op for op in ops))

    @classmethod
    def concat_in_dim(cls, ops, dimension, builder=None) -> "Op":
        return Op(torch.cat([op.op for op in ops], dimension))

    @classmethod
    def call(cls, computation, ops, builder=None) -> "Op":
        """`computation`: of create_computation(), or a function of Ops. A single tuple is given element by element."""
        ops = list(ops)
        if len(ops) == 1 and isinstance(ops[0].op, tuple):
            ops = [Op(op) for op in ops[0].op]
        result = computation.fn(*ops) if isinstance(computation, Computation) else computation(*ops)
        return Op.tuple(result) if isinstance(result, list | tuple) else result

    @classmethod
    def map(cls, ops, computation, dimensions, static_operands=(), builder=None) -> "Op":
        return Op.call(computation, [*ops, *static_operands])

    # ---- Constants ----

    @classmethod
    def constant(cls, builder, value: torch.Tensor) -> "Op":
        return Op(value.to(builder))

    @classmethod
    def scalar(cls, builder, value, dtype=None) -> "Op":
        return Op(torch.full((), value, dtype=cls.to_torch_type(dtype), device=builder))

    @classmethod
    def zero(cls, builder, dtype=None) -> "Op":
        return cls.scalar(builder, 0, dtype)

    @classmethod
    def one(cls, builder, dtype=None) -> "Op":
        return cls.scalar(builder, 1, dtype)

    @classmethod
    def iota(cls, builder, shape: Shape, iota_dimension) -> "Op":
        along = torch.arange(shape.sizes[iota_dimension], device=builder).to(cls.to_torch_type(shape.dtype))
        return Op(along).broadcast_in_dim(shape.sizes, [iota_dimension])

    @classmethod
    def to_torch_type(cls, dtype: str | None) -> torch.dtype:
        return _XLA_PT_TYPE_MAP[dtype] if dtype else torch.float32

    @classmethod
    def from_torch_type(cls, dtype: torch.dtype) -> str:
        return _PT_XLA_TYPE_MAP[dtype]


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
    def method(self: Op) -> Op:
        return Op(function(self.op))

    return method


for _name, _function in _PAIRWISE:
    setattr(Op, _name, _pairwise(_name.strip("_"), getattr(torch, _function)))
Op.__truediv__ = _pairwise("truediv", _divide)
for _name in _UNARY:
    setattr(Op, _name, _elementwise(getattr(torch, _name)))
Op.__neg__ = _elementwise(torch.neg)
Op.__invert__ = Op.__not__ = _elementwise(torch.bitwise_not)
Op.erfinf = _elementwise(torch.erfinv)  # the original's name


class Computation:
    """A function of Ops with its keyword arguments, which tensors of given shapes can be given to."""

    def __init__(self, name: str, fn: Callable[..., Op], shapes: Sequence[Shape]):
        self.name, self.fn, self.shapes = name, fn, list(shapes)

    def __call__(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The results for the tensors. Raises ValueError for others than the shapes say."""
        got = [shape.shape for shape in tensor_shape(tensors)]
        if got != [shape.shape for shape in self.shapes]:
            raise ValueError(f"the computation {self.name} takes {[s.shape for s in self.shapes]}, but got {got}")
        with torch.no_grad():
            result = Op.call(self.fn, map(Op, tensors)).op
        return result if isinstance(result, tuple) else (result,)


def create_builder(name: str) -> torch.device:
    """What constants are made with: the current device."""
    return current_device()


def mkshape(dtype: str, sizes: Sequence[int]) -> Shape:
    return Shape.create(dtype, sizes)


def tensor_shape(tensor, device: str = ""):
    """The Shape of a tensor of an xla device, or a list of those of several. Raises ValueError for other tensors."""
    if isinstance(tensor, list | tuple):
        return [tensor_shape(t) for t in tensor]
    if not isinstance(tensor, torch.Tensor) or tensor.device.type != "xla":
        raise ValueError(
            f"a tensor of an xla device is wanted, but got {getattr(tensor, 'device', type(tensor).__name__)}"
        )
    return Shape(_shape_of(tensor))


def create_computation(name: str, fn: Callable[..., Op], shapes: Sequence[Shape], **kwargs) -> Computation:
    """The function, for tensors of these shapes. It is called whenever the computation is."""
    return Computation(name, lambda *ops: fn(*ops, **kwargs), shapes)


def _user_computation(name: str, inputs: Sequence[torch.Tensor], computation: Computation) -> list[torch.Tensor]:
    del name
    return list(computation(inputs))


_XLAC._xla_user_computation = _user_computation
