"""XLA's operations by their names in the original's builder, for operations of the user's own (xla_op_registry).

An Op stands for a tensor, or a tuple of them, while the operation is recorded. Each method records ATen's operations,
so a user's operation fuses with the operations around it. https://openxla.org/xla/operation_semantics describes the
methods; like XLA they promote no types: two operands must have the same type.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _gone, _XLAC
from .._api import device as current_device
from ._hlo_fields import TABLE, torch_type
from ._hlo_run import ModuleRun
from ._op_elementwise import OpElementwise
from ._op_windows import OpWindows
from ._protos import decode
from ._shapes import Shape, Type
from ._shapes import TORCH_TYPES as _XLA_PT_TYPE_MAP
from ._shapes import XLA_TYPES as _PT_XLA_TYPE_MAP


def _shape_of(value) -> Any:
    if isinstance(value, tuple):
        return tuple(_shape_of(v) for v in value)
    return {"type": Op.from_torch_type(value.dtype), "sizes": tuple(value.shape)}


class Op(OpElementwise, OpWindows):
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
        """The builder for constants beside this one."""
        return (self.op[0] if isinstance(self.op, tuple) else self.op).device

    # ---- Shape ----

    def reshape(self, sizes, dimensions=None, inferred_dimension=None) -> "Op":
        op = self.op if dimensions is None else self.op.permute(dimensions)
        sizes = [-1 if i == inferred_dimension else size for i, size in enumerate(sizes)]
        return Op(op.reshape(sizes))

    def dynamic_reshape(self, sizes) -> "Op":
        """As reshape(): sizes are those of the tensors."""
        return self.reshape(sizes)

    def set_dimension_size(self, size, dimension) -> "Op":
        """Raises NotImplementedError: a tensor has one size, and slice() cuts it."""
        raise NotImplementedError("a tensor has no size that is set by a value; use slice() or select()")

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
        combine = self._combine_by(computation)
        kept = [d for d in range(self.op.dim()) if d not in dimensions]
        op = self.op.permute([*kept, *dimensions]).reshape([*(self.op.size(d) for d in kept), -1])
        while op.size(-1) > 1:
            half = op.size(-1) // 2
            op = torch.cat([combine(op[..., :half], op[..., half : 2 * half]), op[..., 2 * half :]], -1)
        init = init_value.op.expand(op.shape[:-1])
        return Op(combine(init, op[..., 0]) if op.size(-1) else init)

    def reduce_all(self, init_value, computation) -> "Op":
        return self.reduce(init_value, computation, list(range(self.op.dim())))

    # ---- Control flow, tuples ----

    def get_tuple_element(self, index) -> "Op":
        return Op(self.op[index])

    def conditional(self, true_operand, false_operand, true_computation, false_computation) -> "Op":
        """Computes both and takes one: self is a Bool of one element."""
        on_true, on_false = Op.call(true_computation, [true_operand]), Op.call(false_computation, [false_operand])
        if not isinstance(on_true.op, tuple):
            return self.select(on_true, on_false)
        return Op(tuple(torch.where(self.op, a, b) for a, b in zip(on_true.op, on_false.op, strict=True)))

    def mkconditional(self, ops, true_fn, false_fn, **kwargs) -> "Op":
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
    def mkwhile(cls, ops, condition_fn, body_fn, **kwargs) -> "Op":
        return Op.tuple(ops).while_loop(condition_fn, body_fn)

    @classmethod
    def tuple(cls, ops, builder=None) -> "Op":
        return Op(tuple(op.op for op in ops))

    @classmethod
    def concat_in_dim(cls, ops, dimension, builder=None) -> "Op":
        return Op(torch.cat([op.op for op in ops], dimension))

    @classmethod
    def call(cls, computation, ops, builder=None) -> "Op":
        """`computation`: from create_computation(), or a function of Ops. A single tuple is unpacked."""
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


class Computation:
    """A function of Ops with its keyword arguments, for tensors of given shapes."""

    def __init__(self, name: str, fn: Callable[..., Op], shapes: Sequence[Shape]):
        self.name, self.fn, self.shapes = name, fn, list(shapes)

    def __call__(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The results for the tensors. Raises ValueError for tensors of other shapes."""
        got = [shape.shape for shape in tensor_shape(tensors)]
        if got != [shape.shape for shape in self.shapes]:
            raise ValueError(f"the computation {self.name} takes {[s.shape for s in self.shapes]}, but got {got}")
        with torch.no_grad():
            result = Op.call(self.fn, map(Op, tensors)).op
        return result if isinstance(result, tuple) else (result,)

    def record(self):
        """Its operations as a body (_XLAC._Capture), whose parameters are the shapes'."""
        device = current_device()
        capture = _XLAC._Capture(device.index)
        try:
            like = [torch.empty(s.sizes, dtype=Op.to_torch_type(s.dtype), device="meta") for s in self.shapes]
            arguments = [capture.add_argument_like(each) for each in like]
            return capture.take(arguments, list(self(arguments)))
        finally:
            capture.end()


def create_builder(name: str) -> torch.device:
    """The builder for constants: the current device."""
    return current_device()


def mkshape(dtype: str, sizes: Sequence[int], dynamic_dimensions: Sequence[bool] | None = None) -> Shape:
    """An element type of Type and sizes, as Shape.create() takes them."""
    return Shape.create(dtype, sizes, dynamic_dimensions)


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
    """A computation of this function, for tensors of these shapes. Each call of the computation calls the function."""
    return Computation(name, lambda *ops: fn(*ops, **kwargs), shapes)


def computation_from_module_proto(name: str, proto: bytes) -> Computation:
    """The program of a serialized HloModuleProto, for tensors of its shapes.

    Raises ValueError for other bytes, NotImplementedError for a parameter that is a tuple; a call raises
    NotImplementedError for an instruction without a form here.
    """
    module = decode(TABLE, "Module", proto)
    run = ModuleRun(module)
    shapes = module["host_program_shape"].get("parameters", [])

    def fn(*ops: Op) -> Op:
        return Op(run(*(op.op for op in ops), device=ops[0].op.device if ops else current_device()))

    return Computation(name, fn, [mkshape(Op.from_torch_type(torch_type(each)), each["dimensions"]) for each in shapes])


def get_computation_hlo(computation: Computation) -> str:
    """The program as HLO text: the instructions that the device records, which may differ from the given ones.

    Tensors that it takes from outside, such as constants with dims, are its last parameters.
    """
    return _XLAC._body_hlo(current_device().index, computation.record())


def xla_computation_as_func(computation: Computation, name: str | None = None) -> Callable:
    """A function of a list of tensors, which gives a list."""
    return functools.partial(_user_computation, name or computation.name, computation=computation)


def _user_computation(name: str, inputs: Sequence[torch.Tensor], computation: Computation) -> list[torch.Tensor]:
    del name
    return list(computation(inputs))


_XLAC._xla_user_computation = _user_computation
_XLAC._xla_op_computation_from_module_proto = computation_from_module_proto
_XLAC._xla_computation_text = get_computation_hlo


def __getattr__(name: str):
    _gone.refuse(__name__, name)
