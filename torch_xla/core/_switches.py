"""Switches and marks of the original's bindings (`torch_xla._XLAC`): most have no effect here."""

from collections.abc import Sequence

import torch

from .. import _api, _device_module, _XLAC
from .. import runtime as _runtime

_switches = {"ir_debug": False, "all_numbers_special_scalars": False}
_tokens: dict[int, object] = {}  # by device


class _Token:
    """The original's token for the order of collectives. Here they keep the order of recording."""

    def __repr__(self) -> str:
        return "<token of collectives, which orders nothing here>"


def set_ir_debug(ir_debug: bool) -> None:
    """Keeps what get_ir_debug() returns. The lines of a program are always recorded."""
    _switches["ir_debug"] = bool(ir_debug)


def get_ir_debug() -> bool:
    """The last argument of set_ir_debug(); False before."""
    return _switches["ir_debug"]


def set_all_numbers_special_scalars(all_numbers_special_scalars: bool) -> None:
    """True: in programs that a plugin compiles from now on, all Python numbers are constants, so that each other number
    is another program. False: a number that changes becomes an input. Programs of the embedded engine take all numbers
    as inputs.
    """
    _switches["all_numbers_special_scalars"] = bool(all_numbers_special_scalars)
    _XLAC._keep_constant_numbers(bool(all_numbers_special_scalars))


def get_all_numbers_special_scalars() -> bool:
    """The setter's last argument; False before."""
    return _switches["all_numbers_special_scalars"]


def computation_cache_is_initialized() -> bool:
    """Whether this process has compiled a program, or read one from disk."""
    return _api.count_programs() > 0


def init_computation_client() -> None:
    """Starts the device, as its first use does, with the same errors."""
    torch.empty(0, device=_api.device())


def device_kind(device: str = "") -> str:
    """Model of the hardware behind the device: "cpu"."""
    _device_module._existing(device or None)
    return _runtime.device_type().lower()


def runtime_devices() -> list[str]:
    """The hardware of this process's devices, as `["CPU:0"]`, in SPMD mode too."""
    return _XLAC._xla_get_devices()


def set_custom_op_name_prefix(input: torch.Tensor, op_name_prefix: str, max_call_stack_depth: int = 0) -> bool:
    """Names the pending operation that computes the tensor in texts of its graph: the prefix and `aten__add`.

    Args:
        max_call_stack_depth: accepted for the original's sake: the name takes the place of the user's line.

    Returns False where no operation is pending. Raises ValueError for a tensor of another device.
    """
    del max_call_stack_depth
    operation = _XLAC._pending_operation(input)
    if operation:
        _XLAC._name_operation(input, op_name_prefix + operation.replace("::", "__"))
    return bool(operation)


def _index_of(device: str) -> int:
    return torch.device(device).index or 0 if device else _XLAC._xla_current_device()


def get_all_reduce_token(device: str = "") -> object:
    """A token of the device, always the same until another one is set. It orders nothing."""
    return _tokens.setdefault(_index_of(device), _Token())


def set_all_reduce_token(device: str, token: object | None) -> None:
    """Makes it the device's; None: a new one."""
    _tokens[_index_of(device)] = _Token() if token is None else token


def mark_dynamic(input: torch.Tensor, dim: int) -> None:
    """Changes nothing: a dim has the size that it has, and each size is planned for.

    Raises IndexError for a dim that the tensor does not have.
    """
    input.size(dim)


def mark_bounded_dynamic(input: torch.Tensor, dims: Sequence[int], bounds: Sequence[int]) -> None:
    """Changes nothing, as mark_dynamic(). Raises ValueError for a bound under the size of its dim."""
    for dim, bound in zip(dims, bounds, strict=True):
        if input.size(dim) > bound:
            raise ValueError(f"the bound of dim {dim} is {bound}, but its size is {input.size(dim)} already")


_XLAC._set_ir_debug = set_ir_debug
_XLAC._get_ir_debug = get_ir_debug
_XLAC._set_xla_all_numbers_special_scalars = set_all_numbers_special_scalars
_XLAC._get_xla_all_numbers_special_scalars = get_all_numbers_special_scalars
_XLAC._xla_computation_cache_is_initialized = computation_cache_is_initialized
_XLAC._init_computation_client = init_computation_client
_XLAC._xla_device_kind = device_kind
_XLAC._xla_get_runtime_devices = runtime_devices
_XLAC._set_xla_custom_op_name_prefix = set_custom_op_name_prefix
_XLAC._get_all_reduce_token = get_all_reduce_token
_XLAC._set_all_reduce_token = set_all_reduce_token
_XLAC._xla_mark_dynamic = mark_dynamic
_XLAC._xla_mark_bounded_dynamic = mark_bounded_dynamic
