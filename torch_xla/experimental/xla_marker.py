"""torch.ops.xla.mark_tensor: marks a value as an input or output of a composite.

The operations between marked inputs and outputs are one `stablehlo.composite` in the programs of PJRT plugins, with
these operations as its decomposition. The embedded engine runs the decomposition, and a mark costs nothing there.
"""

import re
from collections.abc import Mapping, Sequence

import torch
import torch._dynamo

from .. import _XLAC
from ..core._operators import XLA_LIB

_SCHEMA = "mark_tensor(Tensor x, str name, int pos, str id, bool is_input, str? attr=None) -> Tensor"
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w$.]*")
_ESCAPED = re.compile(r'[\x00-\x1f"\\]')


def _text(value: str) -> str:
    """As an MLIR string."""
    return '"' + _ESCAPED.sub(lambda match: f"\\{ord(match[0]):02X}", value) + '"'


def _number(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if value != value or value in (float("inf"), float("-inf")):
        return "0x7FC00000" if value != value else "0x7F800000" if value > 0 else "0xFF800000"
    return f"{value:.9e}"


def _type(value: bool | int | float) -> str:
    return "i1" if isinstance(value, bool) else "i64" if isinstance(value, int) else "f32"


def _attribute(name: str, value) -> str:
    """The value as an MLIR attribute."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return _number(value)
    if isinstance(value, int | float):
        return f"{_number(value)} : {_type(value)}"
    if isinstance(value, Sequence) and len({type(v) for v in value} - {bool, int, float}) == 0:
        types = {_type(v) for v in value} or {"i64"}
        if len(types) == 1:
            return f"dense<[{', '.join(map(_number, value))}]> : tensor<{len(value)}x{types.pop()}>"
    raise ValueError(
        f"the attribute {name!r} of a composite is a str, bool, int or float, or a list of bool, int or float alone, "
        f"but got {value!r}"
    )


@torch._dynamo.assume_constant_result
def serialize_composite_attr(attr: Mapping[str, object] | None) -> str | None:
    """The argument `attr` of mark_tensor for a composite's attributes; None for None.

    Args:
        attr: values are str, bool, int (i64 in the program), float (f32), or lists of bool, int or float (tensors).

    Raises ValueError for another kind of mapping, name or value.
    """
    if attr is None:
        return None
    if not isinstance(attr, Mapping) or not all(isinstance(name, str) for name in attr):
        raise ValueError(f"attributes of a composite are a dict with str for keys, but got {attr!r}")
    named = {name if _PLAIN_NAME.fullmatch(name) else _text(name): _attribute(name, v) for name, v in attr.items()}
    return "{" + ", ".join(f"{name} = {value}" for name, value in named.items()) + "}"


def _mark(x: torch.Tensor, name: str, pos: int, id: str, is_input: bool, attr: str | None = None) -> torch.Tensor:
    """On the device: a new tensor of the same value, shape, dtype and strides, marked in the graph.

    Args:
        name: of the composite: `stablehlo.composite` with this name.
        pos: among the composite's inputs or outputs.
        id: the same for all marks of one composite, another one for others of its name; no part of programs.
        is_input: or output.
        attr: of outputs, from serialize_composite_attr().
    """
    return _XLAC._mark_tensor(x, name, pos, id, is_input, attr or "")


def _copy(x: torch.Tensor, name: str, pos: int, id: str, is_input: bool, attr: str | None = None) -> torch.Tensor:
    """On other devices: a copy."""
    return x.clone()


def _empty(x: torch.Tensor, name: str, pos: int, id: str, is_input: bool, attr: str | None = None) -> torch.Tensor:
    return torch.empty_like(x)


class _Marked(torch.autograd.Function):
    """The gradient passes through a mark."""

    @staticmethod
    def forward(ctx, *args):
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.xla.mark_tensor(*args)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None, None, None, None, None


def _mark_with_gradient(x: torch.Tensor, name: str, pos: int, id: str, is_input: bool, attr: str | None = None):
    return _Marked.apply(x, name, pos, id, is_input, attr)


XLA_LIB.define(_SCHEMA)
XLA_LIB.impl("mark_tensor", _mark, "XLA")
XLA_LIB.impl("mark_tensor", _copy, "CompositeExplicitAutograd")
XLA_LIB.impl("mark_tensor", _empty, "Meta")
for _key in ("AutogradXLA", "AutogradCPU"):  # for the alias "Autograd" others may register a formula of their own
    XLA_LIB.impl("mark_tensor", _mark_with_gradient, _key)
