"""Attention under the contexts that choose its implementation, and attention with functions of scores and masks."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import sdpa_kernel, SDPBackend
from torch.nn.attention.flex_attention import and_masks, create_block_mask, create_mask, flex_attention, or_masks

BACKENDS = [backend for name, backend in SDPBackend.__members__.items() if name != "ERROR"]
SETS = [[backend] for backend in BACKENDS] + [BACKENDS[:2], BACKENDS[1:], BACKENDS[2:4], BACKENDS]


def draw(*sizes, count=3, **kwargs):
    torch.manual_seed(0)
    return [torch.randn(sizes, **kwargs) for _ in range(count)]


def attempt(where, tensors, backends, **kwargs):
    """Values and gradients, or the class of the error."""
    leaves = [t.detach().to(where).requires_grad_() for t in tensors]
    kwargs = {key: value.to(where) if isinstance(value, torch.Tensor) else value for key, value in kwargs.items()}
    try:
        with sdpa_kernel(backends):
            out = F.scaled_dot_product_attention(*leaves, **kwargs)
        out.square().sum().backward()
    except Exception as error:
        return type(error)
    return [out.detach().cpu(), *[leaf.grad.cpu() for leaf in leaves]]


FORMS = {
    "plain": {},
    "causal": {"is_causal": True},
    "bool": {"attn_mask": torch.ones(6, 6, dtype=torch.bool).tril()},
    "float": {"attn_mask": torch.linspace(-1, 1, 36).view(6, 6)},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backends", SETS, ids=lambda backends: "+".join(b.name for b in backends))
def test_a_context_has_eagers_values_or_class_of_error(device, backends, form):
    tensors = draw(2, 2, 6, 8)
    expected = attempt("cpu", tensors, backends, **FORMS[form])
    actual = attempt(device, tensors, backends, **FORMS[form])
    if isinstance(expected, type):
        assert actual is expected
    else:
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


# What flash attention does not take, so that a context without MATH refuses it.
HARD = {
    "dropout": (draw(2, 2, 6, 8), {"dropout_p": 0.5}),
    "rank3": (draw(2, 6, 8), {}),
    "value_size": ([*draw(2, 2, 6, 8, count=2), *draw(2, 2, 6, 3, count=1)], {}),
    "mask_gradient": (draw(2, 2, 6, 8), {"attn_mask": torch.zeros(6, 6, requires_grad=True)}),
}


@pytest.mark.parametrize("case", HARD)
def test_what_flash_attention_does_not_take_is_refused_where_eager_refuses_it(device, case):
    tensors, kwargs = HARD[case]
    for backends in SETS:
        expected = attempt("cpu", tensors, backends, **kwargs)
        actual = attempt(device, tensors, backends, **kwargs)
        assert isinstance(actual, type) == isinstance(expected, type)
        if isinstance(expected, type):
            assert actual is expected
        elif case != "dropout":
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_a_refusal_names_what_the_context_may_allow(device):
    q, k, v = (t.to(device) for t in draw(2, 2, 6, 8))
    with pytest.raises(RuntimeError, match=r"needs SDPBackend.MATH or SDPBackend.FLASH_ATTENTION, but sdpa_kernel\(\)"):
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            F.scaled_dot_product_attention(q, k, v)
    with pytest.raises(RuntimeError, match=r"allow SDPBackend\.MATH too"), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    expected = F.scaled_dot_product_attention(q.cpu(), k.cpu(), v.cpu())
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        torch.testing.assert_close(F.scaled_dot_product_attention(q, k, v).cpu(), expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_contexts_in_compiled_functions(device, backend):
    @torch.compile(backend=backend, fullgraph=True)
    def attend(q, k, v):
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    tensors = draw(2, 2, 6, 8)
    actual = attend(*(t.to(device) for t in tensors)).cpu()
    torch.testing.assert_close(actual, F.scaled_dot_product_attention(*tensors, is_causal=True), rtol=1e-4, atol=1e-4)


# ---- Functions of scores and masks ----
def causal(b, h, q, kv):
    return q >= kv


def window(b, h, q, kv):
    return (q - kv).abs() <= 2


def prefix(b, h, q, kv):
    return kv < 2


def relative(score, b, h, q, kv):
    return score + (q - kv) * 0.1


def softcap(score, b, h, q, kv):
    return 5 * torch.tanh(score / 5)


def dense(q, k, v, score_mod=None, mask=None, scale=None):
    """The same by operations on whole tensors."""
    b, h, n, e = q.shape
    kv_heads = k.shape[1]
    k, v = (t.repeat_interleave(h // kv_heads, 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * (e**-0.5 if scale is None else scale)
    if score_mod is not None:
        b_i, h_i = torch.arange(b).view(-1, 1, 1, 1), torch.arange(h).view(-1, 1, 1)
        q_i, kv_i = torch.arange(n).view(-1, 1), torch.arange(k.shape[2])
        scores = score_mod(scores, *(t.to(q.device) for t in (b_i, h_i, q_i, kv_i)))
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


def run_flex(where, tensors, **kwargs):
    leaves = [t.detach().to(where).requires_grad_() for t in tensors]
    out = flex_attention(*leaves, **kwargs) if where != "cpu" else dense(*leaves, **kwargs)
    out.square().sum().backward()
    return [out.detach().cpu(), *[leaf.grad.cpu() for leaf in leaves]]


@pytest.mark.parametrize("score_mod", [None, relative, softcap])
@pytest.mark.parametrize("mask_mod", [None, causal, window, or_masks(prefix, window), and_masks(causal, window)])
def test_flex_attention_has_the_values_and_gradients_of_dense_operations(device, score_mod, mask_mod):
    tensors = draw(2, 2, 8, 4)
    block = mask = None
    if mask_mod is not None:
        block = create_block_mask(mask_mod, 2, 2, 8, 8, device=device, BLOCK_SIZE=4)
        mask = create_mask(mask_mod, 2, 2, 8, 8, device="cpu")
        assert torch.equal(create_mask(mask_mod, 2, 2, 8, 8).cpu(), mask)  # its device is the accelerator
    actual = run_flex(device, tensors, score_mod=score_mod, block_mask=block)
    expected = run_flex("cpu", tensors, score_mod=score_mod, mask=mask)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_flex_attention_without_gradients_has_eagers_values(device):
    q, k, v = draw(1, 2, 8, 4)
    expected = flex_attention(q, k, v, score_mod=relative)
    torch.testing.assert_close(flex_attention(*(t.to(device) for t in (q, k, v)), score_mod=relative).cpu(), expected)


def test_flex_attention_with_groups_scale_and_a_captured_tensor(device):
    q, (k, v) = draw(2, 4, 8, 4, count=1)[0], draw(2, 2, 8, 4, count=2)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])

    def alibi(score, b, h, q_index, kv_index):
        return score + slopes.to(score.device)[h] * (kv_index - q_index)

    actual = run_flex(device, [q, k, v], score_mod=alibi, enable_gqa=True, scale=0.3)
    expected = run_flex("cpu", [q, k, v], score_mod=alibi, scale=0.3)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_flex_attention_gives_its_logsumexp(device):
    q, k, v = draw(1, 2, 8, 4)
    _, lse = flex_attention(*(t.to(device) for t in (q, k, v)), return_lse=True)
    torch.testing.assert_close(lse.cpu(), (q @ k.transpose(-1, -2) / 2).logsumexp(-1), rtol=1e-4, atol=1e-4)


BAD_CALLS = {
    "sizes": lambda q, k, v: flex_attention(q, k[..., :2], v),
    "rank": lambda q, k, v: flex_attention(q[0], k[0], v[0]),
    "heads": lambda q, k, v: flex_attention(q, k[:, :1], v[:, :1]),
    "block_mask": lambda q, k, v: flex_attention(q, k, v, block_mask="causal"),
    "scores": lambda q, k, v: flex_attention(q, k, v, score_mod=lambda score: score),
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_flex_attention_refuses_what_eager_refuses(device, call):
    outcomes = []
    for where in ("cpu", device):
        try:
            result = BAD_CALLS[call](*(t.to(where) for t in draw(1, 2, 8, 4)))
            outcomes.append(result.shape)
        except Exception as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1]


def test_flex_attention_compiled_with_aot_eager(device):
    tensors = draw(2, 2, 8, 4)
    block = create_block_mask(causal, 2, 2, 8, 8, device=device, BLOCK_SIZE=4)
    compiled = torch.compile(flex_attention, backend="aot_eager", fullgraph=True)
    actual = compiled(*(t.to(device) for t in tensors), block_mask=block).cpu()
    expected = dense(*tensors, mask=torch.ones(8, 8, dtype=torch.bool).tril())
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


# ---- Modules that are imported late ----
def test_programs_may_import_flex_attention_first(run_python):
    out = run_python(
        """
        import torch.nn.attention.flex_attention as flex
        import torch, torch_xla
        q = torch.ones(1, 1, 2, 2, device="xla")
        print(flex.flex_attention(q, q, q).tolist(), flex.__spec__.name)
        try:
            flex._validate_device(*[torch.ones(1, device="meta")] * 3)
        except ValueError as error:
            print(error)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert "[[[[1.0, 1.0], [1.0, 1.0]]]] torch.nn.attention.flex_attention" in out
    assert "FlexAttention is only supported on" in out and "meta device" in out
