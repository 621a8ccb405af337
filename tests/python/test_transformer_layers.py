"""nn.MultiheadAttention and nn.TransformerEncoder in inference, where they call operations of their own."""

import copy

import pytest
import torch
from torch import nn

import torch_xla.debug.metrics as met

LENGTHS = [6, 3, 4]
PADDING = torch.arange(6)[None] >= torch.tensor(LENGTHS)[:, None]
CAUSAL = torch.ones(6, 6, dtype=torch.bool).triu(1)


def _both(module, *args, **kwargs):
    results = []
    for device in ("cpu", "xla"):
        model = copy.deepcopy(module).to(device)
        moved = [t.to(device) for t in args]
        options = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
        met.clear_all()
        with torch.no_grad():
            outputs = model(*moved, **options)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        results.append([t.cpu() for t in outputs if t is not None])
    # The encoder compares its mask with a causal one, on the host.
    assert {n for n in met.counter_names() if n.startswith("aten::")} <= {"aten::_local_scalar_dense"}
    return results


MASKS = {
    "none": {},
    "padding": {"key_padding_mask": PADDING},
    "causal": {"attn_mask": CAUSAL},
    "both": {"key_padding_mask": PADDING, "attn_mask": CAUSAL},
    "heads": {"attn_mask": torch.rand(12, 6, 6, generator=torch.Generator().manual_seed(0)) > 0.7},
    "float": {"attn_mask": torch.linspace(-3, 0, 36).reshape(6, 6)},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("form", ["default", "no_weights", "weights_by_head", "sequence_first", "cross"])
def test_multihead_attention(form, mask):
    torch.manual_seed(0)
    model = nn.MultiheadAttention(16, 4, batch_first=form != "sequence_first").eval()
    x = torch.randn(3, 6, 16) if form != "sequence_first" else torch.randn(6, 3, 16)
    memory = torch.randn(3, 6, 16) if form == "cross" else x
    options = {
        "no_weights": {"need_weights": False},
        "weights_by_head": {"average_attn_weights": False},
    }.get(form, {})
    expected, actual = _both(model, x, memory, memory, **MASKS[mask], **options)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("mask", ["none", "padding", "ragged", "causal", "both"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder(activation, norm_first, mask):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation=activation, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16)).eval()
    ragged = PADDING.clone()
    ragged[1, 0] = True
    options = {
        "none": {},
        "padding": {"src_key_padding_mask": PADDING},
        "ragged": {"src_key_padding_mask": ragged},
        "causal": {"mask": CAUSAL},
        "both": {"src_key_padding_mask": PADDING, "mask": CAUSAL},
    }[mask]
    expected, actual = _both(model, torch.randn(3, 6, 16), **options)
    shown = ~PADDING if mask == "padding" else torch.ones_like(PADDING)  # eager's nested tensors drop what is padded
    torch.testing.assert_close(actual[0][shown], expected[0][shown], rtol=1e-4, atol=1e-4)


def test_encoder_layer_with_every_key_hidden():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    hidden = PADDING.clone()
    hidden[1] = True
    expected, actual = _both(model, torch.randn(3, 6, 16), src_key_padding_mask=hidden)
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-4, atol=1e-4, equal_nan=True)


def test_training_with_padding():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
    model, x, target = nn.TransformerEncoder(layer, 2), torch.randn(3, 6, 16), torch.randn(3, 6, 16)
    losses = {}
    for device in ("cpu", "xla"):
        trained = copy.deepcopy(model).to(device).train()
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        losses[device] = []
        for _ in range(20):
            optimizer.zero_grad()
            y = trained(x.to(device), src_key_padding_mask=PADDING.to(device))
            loss = (y - target.to(device)).square()[~PADDING.to(device)].mean()
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
    assert losses["xla"] == pytest.approx(losses["cpu"], rel=1e-3)
