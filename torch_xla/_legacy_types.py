"""The classes `torch.xla.FloatTensor`, `torch.xla.FloatStorage` and their like, as `torch.cuda` has them."""

import torch

_TENSORS = {
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Short": torch.int16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Float": torch.float32,
    "Double": torch.float64,
}


class _TensorType(type):
    """Metaclass of the tensor classes: they have no instances; isinstance() accepts matching tensors."""

    dtype: torch.dtype

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_xla and instance.dtype == cls.dtype

    def __call__(cls, *args) -> torch.Tensor:
        """A tensor of the given data or, uninitialized, of the given sizes."""
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return torch.tensor(args[0], dtype=cls.dtype, device="xla")
        return torch.empty(*(args or (0,)), dtype=cls.dtype, device="xla")

    def __repr__(cls) -> str:
        return f"<class '{cls.__name__}'>"


def add_types(module) -> None:
    """Makes the classes attributes of `module`, which is `torch.xla`."""
    for name, dtype in _TENSORS.items():
        # Tensor.type() takes a class by its whole name.
        made = _TensorType(f"torch.xla.{name}Tensor", (), {"dtype": dtype, "__module__": "torch.xla"})
        setattr(module, f"{name}Tensor", made)
    for dtype, name in torch.storage._dtype_to_storage_type_map().items():
        body = {"dtype": dtype, "_dtype": dtype, "__module__": "torch.xla"}
        setattr(module, name, type(torch.FloatStorage)(name, (torch.storage._LegacyStorage,), body))
