"""Decoding: grouped heads over static and growing caches, weights of all types, one token at a time, as in eager."""

import pytest
import torch
import torch.nn.functional as F

import torch_xla

HEADS, KEY_HEADS, SIZE, TOKENS = 8, 2, 16, 40
WIDTH = HEADS * SIZE
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def weights(out, kind, dtype):
    """A function that multiplies by a random weight [out, WIDTH]: by floats, 8 or 4 bits."""
    if kind == 8:
        weight, scales = torch.randint(-127, 128, (out, WIDTH), dtype=torch.int8), (torch.rand(out) * 1e-3).to(dtype)
        return [weight, scales], lambda x, w, s: torch._weight_int8pack_mm(x, w, s)
    if kind == 4:
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
            torch.randint(0, 16, (out, WIDTH), dtype=torch.int32), 1
        )
        scales = (torch.rand(WIDTH // 32, out, 2) * 1e-2).to(dtype)
        return [packed, scales], lambda x, w, s: torch.ops.aten._weight_int4pack_mm_for_cpu(x, w, 32, s)
    return [(torch.randn(out, WIDTH) / WIDTH**0.5).to(dtype)], F.linear


def repeated(x):
    """Keys or values for each head, as models write it."""
    batch, heads, tokens, size = x.shape
    x = x[:, :, None].expand(batch, heads, HEADS // KEY_HEADS, tokens, size)
    return x.reshape(batch, HEADS, tokens, size)


def attend(style, cache, q, k, v, position):
    """Attention of one token; the cache is a buffer, or grows."""
    if style == "grows":
        cache[:] = [k, v] if cache[0] is None else [torch.cat([c, n], 2) for c, n in zip(cache, (k, v))]
        return F.scaled_dot_product_attention(q, *cache, enable_gqa=True)
    for buffer, new in zip(cache, (k, v)):
        buffer.index_copy_(2, position, new)
    if style == "slice":
        keys, values = (buffer[:, :, : int(position) + 1] for buffer in cache)
        return F.scaled_dot_product_attention(q, repeated(keys), repeated(values))
    mask = (torch.arange(TOKENS, device=q.device) <= position[:, None])[None, None]
    return F.scaled_dot_product_attention(q, repeated(cache[0]), repeated(cache[1]), attn_mask=mask)


def decode(style, kind, dtype, device, batch=1, steps=6):
    torch.manual_seed(0)
    parts = [weights(out, kind, dtype) for out in (WIDTH, KEY_HEADS * SIZE, KEY_HEADS * SIZE, WIDTH)]
    moved = [([t.to(device) for t in tensors], function) for tensors, function in parts]
    x = torch.randn(batch, WIDTH).to(dtype).to(device)
    empty = torch.full((batch, KEY_HEADS, TOKENS, SIZE), torch.nan if style == "slice" else 0.0, dtype=dtype)
    cache = [None, None] if style == "grows" else [empty.to(device, copy=True) for _ in range(2)]
    for step in range(steps):
        q, k, v = (f(x, *w).view(batch, 1, -1, SIZE).transpose(1, 2) for w, f in moved[:3])
        y = attend(style, cache, q, k, v, torch.tensor([step]).to(device))
        x = x + moved[3][1](y.transpose(1, 2).reshape(batch, WIDTH), *moved[3][0])
        if device == "xla":
            torch_xla.sync()
    return x.float().cpu()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [16, 8, 4])
@pytest.mark.parametrize("style", ["grows", "mask", "slice"])
def test_tokens_are_those_of_eager(device, style, kind, dtype):
    tolerance = 1e-4 if dtype == torch.float32 else 16 * torch.finfo(dtype).eps
    expected = decode(style, kind, dtype, "cpu")
    torch.testing.assert_close(decode(style, kind, dtype, "xla"), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", [16, 8, 4])
def test_a_few_streams(device, kind):
    expected = decode("mask", kind, torch.float32, "cpu", batch=5)
    torch.testing.assert_close(decode("mask", kind, torch.float32, "xla", batch=5), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 31), (2, 3, 32)])
def test_rows_that_do_not_fit_the_weight(device, shape):
    (weight, scales), multiply = weights(64, 8, torch.float32)
    (packed, pairs), multiply_packed = weights(64, 4, torch.float32)
    for function, *tensors in ((multiply, weight, scales), (multiply_packed, packed, pairs)):
        x = torch.randn(shape)
        with pytest.raises(RuntimeError):
            function(x, *tensors)
        with pytest.raises(RuntimeError):
            function(x.to(device), *(t.to(device) for t in tensors)).cpu()


def test_no_rows(device):
    (weight, scales), multiply = weights(64, 8, torch.bfloat16)
    x = torch.empty(0, WIDTH, dtype=torch.bfloat16)
    assert multiply(x.to(device), weight.to(device), scales.to(device)).cpu().shape == (0, 64)
