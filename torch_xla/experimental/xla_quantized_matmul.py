"""Products with weights of 8 or 4 bits: torch.ops.xla.quantized_matmul, and a linear layer of it.

The weights stay small in memory; the compiler converts them to floats for each product.
"""

import torch

_library = torch.library.Library("xla", "FRAGMENT")
_library.define(
    "quantized_matmul(Tensor x, Tensor w, Tensor scale, Tensor? zero_point=None, int? block_size=-1, "
    "bool? int4_weight=False, bool? quantize_activation=False) -> Tensor"
)


def _check_weight(inputs: int, w: torch.Tensor, scaler: torch.Tensor, zero_point, block_size: int) -> None:
    """ValueError for tensors that do not fit each other, or a weight that is not int8."""
    if w.dtype != torch.int8:
        raise ValueError(f"the weight is {w.dtype} and should be torch.int8")
    if block_size == -1:
        wanted, scales = [scaler.shape[0] if scaler.dim() else 0, inputs], list(w.shape[:1])
    else:
        if block_size < 1 or inputs % block_size:
            raise ValueError(f"{inputs} input features are no multiple of block_size {block_size}")
        wanted, scales = [inputs // block_size, block_size, *scaler.shape[1:]], [inputs // block_size, *w.shape[2:]]
    if list(w.shape) != wanted or len(wanted) != (2 if block_size == -1 else 3):
        raise ValueError(f"the weight has shape {list(w.shape)} and should have {wanted}")
    for name, t in (("scaler", scaler), ("zero_point", zero_point)):
        if t is not None and list(t.shape) != scales:
            raise ValueError(f"the {name} has shape {list(t.shape)} and should have {scales}")


def _quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`x` in steps of 1/127 of each row's largest value, as int8, and the step."""
    step = x.abs().amax(dim=-1, keepdim=True) / 127
    return torch.round(x / step).to(torch.int8), step


def quantized_matmul(
    x: torch.Tensor,
    w: torch.Tensor,
    scaler: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    block_size: int | None = -1,
    int4_weight: bool | None = False,
    quantize_activation: bool | None = False,
) -> torch.Tensor:
    """`x` times the transposed weight: x @ (w * scaler - zero_point)^T.

    Args:
        x: floats, [..., in_features].
        w: int8, [out_features, in_features]; by blocks [in_features / block_size, block_size, out_features].
        scaler: [out_features]; by blocks [in_features / block_size, out_features].
        zero_point: of scaler's shape, already multiplied by it.
        block_size: -1 for a scale of each output feature.
        int4_weight: the weights are from -8 to 7. They are computed like others.
        quantize_activation: `x` is rounded to int8 too, and multiplied as integers; not by blocks.

    Returns [..., out_features] of x's dtype. Raises ValueError for tensors that do not fit each other.
    """
    del int4_weight
    _check_weight(x.shape[-1], w, scaler, zero_point, block_size)
    if block_size != -1:
        if quantize_activation:
            raise ValueError("quantize_activation is not possible with a block_size")
        blocks = x.unflatten(-1, (-1, block_size))
        out = (torch.einsum("scn,...sc->...sn", w.to(x.dtype), blocks) * scaler).sum(-2)
        return out if zero_point is None else out - blocks.sum(-1) @ zero_point
    step = 1
    if quantize_activation:
        x, step = _quantize(x)
        out = torch.nn.functional.linear(x.to(torch.int32), w.to(torch.int32)) * scaler
    else:
        out = torch.nn.functional.linear(x, w.to(x.dtype)) * scaler
    if zero_point is not None:
        out = out - x.sum(-1, keepdim=True) * zero_point
    return out * step


_library.impl("quantized_matmul", quantized_matmul, "CompositeImplicitAutograd")


class XlaQuantizedLinear(torch.nn.Module):
    """A linear layer without a bias, with a weight of 8 or 4 bits.

    Args:
        input_dim, output_dim: its features.
        is_symmetric: there is no zero point.
        block_size, int4_weight, quantize_activation: as for quantized_matmul().
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        is_symmetric: bool = False,
        block_size: int = -1,
        int4_weight: bool = False,
        quantize_activation: bool = False,
    ):
        super().__init__()
        self.input_dim, self.output_dim = input_dim, output_dim
        self.is_symmetric = is_symmetric
        self.block_size, self.int4_weight, self.quantize_activation = block_size, int4_weight, quantize_activation
        blocks = () if block_size == -1 else (input_dim // block_size,)
        shape = (output_dim, input_dim) if block_size == -1 else (*blocks, block_size, output_dim)
        self.register_buffer("weight", torch.zeros(shape, dtype=torch.int8))
        self.register_buffer("weight_scaler", torch.zeros(*blocks, output_dim))
        self.register_buffer("zero_point", None if is_symmetric else torch.zeros(*blocks, output_dim))

    def load_quantized_weight(
        self, weight: torch.Tensor, weight_scaler: torch.Tensor, zero_point: torch.Tensor | None = None
    ) -> None:
        """Takes these tensors, with shapes as for quantized_matmul(), or raises its ValueError."""
        _check_weight(self.input_dim, weight, weight_scaler, zero_point, self.block_size)
        self.weight, self.weight_scaler, self.zero_point = weight, weight_scaler, zero_point

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., output_dim] for floats [..., input_dim]."""
        return torch.ops.xla.quantized_matmul(
            x,
            self.weight,
            self.weight_scaler,
            self.zero_point,
            block_size=self.block_size,
            int4_weight=self.int4_weight,
            quantize_activation=self.quantize_activation,
        )
