"""The original's kernels for TPUs by PyTorch's operations: products of groups, attention, operators in XLA_LIB."""

import pytest
import torch

import torch_xla
from torch_xla.experimental import custom_kernel
from torch_xla.experimental.custom_kernel import (
    _histogram,
    flash_attention,
    FlashAttention,
    GMM,
    gmm,
    gmm_backward,
    tgmm,
    XLA_LIB,
)
from torch_xla.experimental.splash_attention import splash_attention, SplashAttention, SplashAttentionConfig

# ---- Products of groups ----
SIZES = torch.tensor([3, 0, 5], dtype=torch.int32)


def plain_gmm(lhs, rhs, sizes):
    parts = list(lhs[: sum(sizes)].split(sizes))
    return torch.cat(
        [part @ rhs[i] for i, part in enumerate(parts)] + [lhs.new_zeros(len(lhs) - sum(sizes), rhs.size(2))]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("call", [gmm, GMM.apply, torch.ops.xla.gmm])
def test_products_of_groups(device, dtype, call):
    lhs = torch.randn(10, 6, dtype=dtype, requires_grad=True)
    rhs = torch.randn(3, 6, 5, dtype=dtype, requires_grad=True)
    on_device = [t.detach().to(device).requires_grad_() for t in (lhs, rhs)]
    result, want = call(*on_device, SIZES.to(device)), plain_gmm(lhs, rhs, SIZES.tolist())
    torch.testing.assert_close(result.cpu(), want)
    gradient = torch.randn_like(want)
    result.backward(gradient.to(device))
    want.backward(gradient)
    both = gmm_backward(gradient.to(device), *(t.detach() for t in on_device), SIZES.to(device))
    for t, by_hand, plain in zip(on_device, both, (lhs, rhs)):
        torch.testing.assert_close(t.grad.cpu(), plain.grad)
        torch.testing.assert_close(by_hand.cpu(), plain.grad)


def test_matrices_that_are_transposed(device):
    lhs, rhs = torch.randn(8, 6), torch.randn(3, 5, 6)
    got = gmm(lhs.to(device), rhs.to(device), SIZES.to(device), (512, 512, 512), transpose_rhs=True)
    torch.testing.assert_close(got.cpu(), plain_gmm(lhs, rhs.mT, SIZES.tolist()))


@pytest.mark.parametrize("first, count", [(0, 1), (1, 2), (2, 1), (1, 1)])
def test_some_of_the_groups(device, first, count):
    lhs, rhs = torch.randn(10, 6), torch.randn(3, 6, 5)
    offset = torch.tensor([first], dtype=torch.int32, device=device)
    want, ends = plain_gmm(lhs, rhs, SIZES.tolist()), [0, *SIZES.cumsum(0).tolist()]
    want[: ends[first]], want[ends[first + count] :] = 0, 0
    some = rhs[first : first + count].to(device)
    torch.testing.assert_close(gmm(lhs.to(device), some, SIZES.to(device), None, offset).cpu(), want)
    gradients = tgmm(lhs.t().to(device), lhs.to(device), SIZES.to(device), (512, 512, 512), offset, count)
    parts = [part.t() @ part for part in lhs[:8].split(SIZES.tolist())]
    torch.testing.assert_close(gradients.cpu(), torch.stack(parts)[first : first + count])


def test_groups_whose_sizes_change_take_one_program(device, compiles):
    lhs, rhs = torch.randn(8, 6, device=device), torch.randn(3, 6, 5, device=device)
    for number, sizes in enumerate(([3, 0, 5], [1, 6, 1], [8, 0, 0])):
        sizes = torch.tensor(sizes, dtype=torch.int32, device=device)
        torch_xla.sync()
        if number == 1:
            compiles.reset()
        gmm(lhs, rhs, sizes)
        torch_xla.sync()
    assert compiles.value == 0


def test_shapes_that_are_no_groups():
    with pytest.raises(ValueError, match=r"2, 3 and 1 dims, but not \[2, 2\], \[2, 2\] and \[3\]"):
        gmm(torch.ones(2, 2), torch.ones(2, 2), SIZES)


def test_histogram(device):
    numbers = torch.tensor([[1, 2, 2], [7, -1, 0]], dtype=torch.int32, device=device)
    counts = _histogram(numbers, min=0, max=3)
    assert counts.dtype == torch.int32 and counts.tolist() == [1, 1, 2, 0]
    with pytest.raises(TypeError, match=r"of torch\.int32, but the tensor is of torch\.int64"):
        _histogram(numbers.long(), 0, 3)
    with pytest.raises(ValueError, match="min <= max, but got 3 and 2"):
        _histogram(numbers, 3, 2)


# ---- Flash attention by other names ----
def test_flash_attention_as_a_function_with_a_gradient(device):
    q, k, v, ab = (torch.randn(*sizes, device=device) for sizes in [(2, 3, 5, 8)] * 3 + [(2, 3, 5, 5)])
    ids = torch.tensor([[0, 0, 1, 1, 1], [2, 2, 2, 3, 3]], device=device)
    want = flash_attention(q, k, v, True, ids, ids, 0.5, ab=ab)
    q.requires_grad_()
    got = FlashAttention.apply(q, k, v, True, ids, ids, 0.5, ab, None, None)
    torch.testing.assert_close(got, want)
    got.sum().backward()
    assert q.grad.abs().sum().item() > 0
    assert FlashAttention.DEFAULT_BLOCK_SIZES["block_q"] == 512 and FlashAttention.MIN_BLOCK_SIZE == 128


def test_flash_attention_of_more_batch_dims(device):
    q, k, v = (torch.randn(2, 2, 3, 5, 8, device=device) for _ in range(3))
    ids = torch.tensor([[[0, 0, 1, 1, 1], [2, 2, 2, 3, 3]]] * 2, device=device)
    got = flash_attention(q, k, v, False, ids, ids)
    want = flash_attention(*(t.flatten(0, 1) for t in (q, k, v)), False, *[ids.flatten(0, 1)] * 2)
    torch.testing.assert_close(got.flatten(0, 1), want)
    torch.testing.assert_close(torch.ops.xla.flash_attention(q, k, v, True), flash_attention(q, k, v, True))


def test_operators_of_programs_in_the_library(device):
    XLA_LIB.define("names_test_twice(Tensor x) -> Tensor")

    @torch.library.impl(XLA_LIB, "names_test_twice", "XLA")
    def twice(x):
        return x + x

    @torch.library.impl(XLA_LIB, "names_test_twice", "CompositeExplicitAutograd")
    def thrice(x):
        return x * 3

    x = torch.ones(2)
    assert torch.ops.xla.names_test_twice(x.to(device)).tolist() == [2, 2]
    assert torch.ops.xla.names_test_twice(x).tolist() == [3, 3]
    import torch_xla.core.xla_model as xm

    assert xm.XLA_LIB is XLA_LIB is custom_kernel.XLA_LIB


# ---- Splash attention ----
def plain_splash(q, k, v, causal, window, ids, cap):
    scores = q.double() @ k.double().mT
    scores = scores if cap is None else cap * torch.tanh(scores / cap)
    to, of = torch.arange(q.size(2))[:, None], torch.arange(k.size(2))
    seen = torch.ones(q.size(2), k.size(2), dtype=torch.bool)
    if causal:
        seen = seen & (of <= to)
    if window is not None:
        seen = seen & (of >= to - window) & (of <= to + window)
    if ids is not None:
        seen = seen & (ids[:, None, :, None] == ids[:, None, None, :])
    return (scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v.double()).to(q.dtype)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("cap", [None, 1.5])
def test_splash_attention(device, causal, window, segments, cap):
    on_cpu = [torch.randn(2, 3, 7, 8, requires_grad=True) for _ in range(3)]
    on_device = [t.detach().to(device).requires_grad_() for t in on_cpu]
    ids = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [3] * 7]) if segments else None
    config = SplashAttentionConfig(attentiontype_local_sliding=window is not None, slide_window_size=window).to_json()
    apply = splash_attention if causal else SplashAttention.apply
    got = apply(*on_device, config, None if ids is None else ids.to(device), causal, cap)
    want = plain_splash(*on_cpu, causal, window, ids, cap)
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    gradient = torch.randn_like(want)
    got.backward(gradient.to(device))
    want.backward(gradient)
    for a, b in zip(on_device, on_cpu):
        torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=1e-4, atol=1e-5)


def test_splash_attention_in_half_precision(device):
    q, k, v = (torch.randn(1, 2, 6, 8, dtype=torch.bfloat16) for _ in range(3))
    got = splash_attention(q.to(device), k.to(device), v.to(device), "{}", attn_logits_soft_cap=5.0)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.cpu(), plain_splash(q, k, v, True, None, None, 5.0), rtol=2e-2, atol=2e-2)


def test_a_configuration_as_text():
    config = SplashAttentionConfig(sa_block_q=512, mesh="m", qkv_partition_spec=(("data", "fsdp"), None, "x", None))
    again = SplashAttentionConfig.from_json(config.to_json())
    assert again == config and hash(again) == hash(config) and again.qkv_partition_spec[0] == ("data", "fsdp")
    no_size = SplashAttentionConfig(attentiontype_local_sliding=True).to_json()
    with pytest.raises(ValueError, match="slide_window_size is missing"):
        splash_attention(*[torch.ones(1, 1, 2, 2)] * 3, no_size)
