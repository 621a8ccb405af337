"""The element types and shapes of torch_xla.core.xla_builder."""

from collections.abc import Sequence

import torch


class Type:
    """The names of the element types."""

    F32 = "f32"
    F64 = "f64"
    BF16 = "bf16"
    F16 = "f16"
    U8 = "u8"
    S8 = "s8"
    U16 = "u16"
    S16 = "s16"
    U32 = "u32"
    S32 = "s32"
    U64 = "u64"
    S64 = "s64"
    C64 = "c64"
    C128 = "c128"
    PRED = "pred"


TORCH_TYPES = {
    Type.F32: torch.float32,
    Type.F64: torch.float64,
    Type.BF16: torch.bfloat16,
    Type.F16: torch.float16,
    Type.U8: torch.uint8,
    Type.S8: torch.int8,
    Type.U16: torch.uint16,
    Type.S16: torch.int16,
    Type.U32: torch.uint32,
    Type.S32: torch.int32,
    Type.U64: torch.uint64,
    Type.S64: torch.int64,
    Type.C64: torch.complex64,
    Type.C128: torch.complex128,
    Type.PRED: torch.bool,
}
XLA_TYPES = {dtype: name for name, dtype in TORCH_TYPES.items()}


class Shape:
    """An element type and sizes, or a tuple of such."""

    def __init__(self, shape):
        self.shape = shape  # a dict of "type", "sizes" and maybe "dynamic_dimensions", or a tuple of dicts

    @classmethod
    def create(cls, dtype: str, sizes: Sequence[int], dynamic_dimensions: Sequence[bool] | None = None) -> "Shape":
        shape = {"type": str(dtype), "sizes": tuple(sizes)}
        return cls(shape if dynamic_dimensions is None else shape | {"dynamic_dimensions": tuple(dynamic_dimensions)})

    def is_tuple(self) -> bool:
        return isinstance(self.shape, list | tuple)

    def tuple_size(self) -> int:
        return len(self.shape)

    def tuple_shape(self, index: int):
        return self.shape[index]

    def is_dynamic(self) -> bool:
        return self.dynamic_dimensions is not None

    @property
    def dynamic_dimensions(self) -> tuple[bool, ...] | None:
        """The argument of create(); it has no effect, as sizes are the tensors'."""
        return self.shape.get("dynamic_dimensions")

    def as_scalar(self) -> "Shape":
        return Shape.create(self.dtype, ())

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.shape["sizes"]

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def dtype(self) -> str:
        return self.shape["type"]
