"""Composites: parts of a program that a plugin's compiler knows by name."""

import uuid
from collections.abc import Mapping

import torch
import torch._dynamo

from . import xla_marker


@torch._dynamo.assume_constant_result
def _new_id() -> str:
    return uuid.uuid4().hex


class StableHLOCompositeBuilder:
    """Makes the operations between its marks one `stablehlo.composite`, with these operations as the decomposition.

        builder = StableHLOCompositeBuilder("vendor.rms_norm", {"epsilon": 1e-5})
        x, weight = builder.mark_inputs(x, weight)
        y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, 1e-5)
        y = builder.mark_outputs(y)

    The composite's operands are the marked inputs in their order, then other tensors that the decomposition reads.
    Numbers are constants of it, so another number is another program. Its results are the marked outputs. Values are
    those of the decomposition on every engine, and so are the gradients. A sync between the marks leaves the operations
    as they are.

    Args:
        name: of the composite, as the compiler knows it.
        attr: its attributes: str, bool, int, float, or lists of bool, int or float.

    Attributes: name, attr, id (what the marks have in common; a builder may be used again and again).
    """

    def __init__(self, name: str, attr: Mapping[str, object] | None = None):
        self.name = name
        self.attr = attr
        self.id = _new_id()

    def _mark(self, tensors: tuple[torch.Tensor, ...], is_input: bool) -> torch.Tensor | tuple[torch.Tensor, ...]:
        attr = None if is_input else xla_marker.serialize_composite_attr(self.attr)
        marked = []
        for position, tensor in enumerate(tensors):
            if not isinstance(tensor, torch.Tensor):
                raise ValueError(f"inputs and outputs of a composite are tensors, but got {type(tensor).__name__}")
            marked.append(
                torch.ops.xla.mark_tensor(
                    tensor, name=self.name, pos=position, id=self.id, is_input=is_input, attr=attr
                )
            )
        return marked[0] if len(marked) == 1 else tuple(marked)

    def mark_inputs(self, *tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The tensors as inputs: use the results in their place. One tensor gives a tensor, several a tuple.

        Raises ValueError for an argument that is no tensor.
        """
        return self._mark(tensors, is_input=True)

    def mark_outputs(self, *tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """As mark_inputs(), for the outputs. Raises ValueError for attributes that a program cannot have, too."""
        return self._mark(tensors, is_input=False)
