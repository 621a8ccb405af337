"""Products with weights of 8 or 4 bits: torch.ops.xla.quantized_matmul and XlaQuantizedLinear."""

import pytest
import torch

from torch_xla.experimental.xla_quantized_matmul import XlaQuantizedLinear


def quantized(block_size: int, symmetric: bool, bits: int = 8):
    """A weight [6, 8] and what it is rounded to: (weight, int8 weight, scaler, zero_point)."""
    weight = torch.randn(6, 8)
    blocks = weight.unflatten(1, (-1, 8 if block_size == -1 else block_size))
    low, high = blocks.amin(2, keepdim=True), blocks.amax(2, keepdim=True)
    if symmetric:
        scaler, zero = torch.maximum(-low, high) / (2 ** (bits - 1) - 1), torch.zeros_like(low)
    else:
        scaler = (high - low) / (2**bits - 1)
        zero = -(2 ** (bits - 1)) - torch.round(low / scaler)
    rounded = (torch.round(blocks / scaler) + zero).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)
    scaler, zero = scaler.squeeze(2), None if symmetric else (zero * scaler).squeeze(2)
    if block_size == -1:
        return weight, rounded.flatten(1), scaler[:, 0], zero if zero is None else zero[:, 0]
    return weight, rounded.permute(1, 2, 0), scaler.t(), zero if zero is None else zero.t()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("block_size", [-1, 4])
@pytest.mark.parametrize("where", ["cpu", "xla"])
def test_a_layer_is_near_the_one_of_floats(device, where, block_size, symmetric, bits):
    weight, *parts = quantized(block_size, symmetric, bits)
    layer = XlaQuantizedLinear(8, 6, is_symmetric=symmetric, block_size=block_size, int4_weight=bits == 4)
    layer.load_quantized_weight(*parts)
    layer = layer.to(where)
    x = torch.randn(2, 3, 8)
    expected = torch.nn.functional.linear(x, weight)
    found = layer(x.to(where)).cpu()
    assert found.shape == (2, 3, 6) and (found - expected).abs().max() < (0.05 if bits == 8 else 1.0)


@pytest.mark.parametrize("symmetric", [True, False])
def test_activations_are_rounded_too(device, symmetric):
    weight, *parts = quantized(-1, symmetric)
    x = torch.randn(5, 8)
    found = torch.ops.xla.quantized_matmul(
        x.to(device), *(None if part is None else part.to(device) for part in parts), quantize_activation=True
    )
    expected = torch.ops.xla.quantized_matmul(x, *parts, quantize_activation=True)
    torch.testing.assert_close(found.cpu(), expected)
    assert (expected - x @ weight.t()).abs().max() < 0.1


def test_it_compiles(device):
    _, *parts = quantized(-1, True)
    layer = XlaQuantizedLinear(8, 6, is_symmetric=True)
    layer.load_quantized_weight(*parts)
    layer, x = layer.to(device), torch.randn(2, 8).to(device)
    assert torch.compile(layer, backend="openxla")(x).equal(layer(x))
    assert set(layer.state_dict()) == {"weight", "weight_scaler"}


@pytest.mark.parametrize(
    "change, match",
    [
        ({"w": torch.zeros(6, 8)}, r"should be torch\.int8"),
        ({"w": torch.zeros(6, 7, dtype=torch.int8)}, r"has shape \[6, 7\] and should have \[6, 8\]"),
        ({"scale": torch.zeros(5)}, r"the weight has shape \[6, 8\] and should have \[5, 8\]"),
        ({"zero_point": torch.zeros(7)}, r"the zero_point has shape \[7\] and should have \[6\]"),
        ({"block_size": 3}, "8 input features are no multiple of block_size 3"),
        ({"block_size": 4}, "the weight has shape"),
    ],
)
def test_what_does_not_fit(change, match):
    _, w, scaler, _ = quantized(-1, True)
    with pytest.raises(ValueError, match=match):
        torch.ops.xla.quantized_matmul(**{"x": torch.ones(1, 8), "w": w, "scale": scaler, **change})


def test_blocks_with_rounded_activations():
    _, w, scaler, _ = quantized(4, True)
    with pytest.raises(ValueError, match="not possible with a block_size"):
        torch.ops.xla.quantized_matmul(torch.ones(1, 8), w, scaler, block_size=4, quantize_activation=True)
