"""Attention with every kind of mask, head count, rank and size has eager's values, gradients and errors."""

import pytest
import torch
import torch.nn.functional as F

import torch_xla.debug.metrics as met

# Query, key and value sizes. B 2, H 4, L 5, S 6, E 8.
SIZES = {
    "plain": ((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8)),
    "rank3": ((4, 5, 8), (4, 6, 8), (4, 6, 8)),
    "rank2": ((5, 8), (6, 8), (6, 8)),
    "rank5": ((2, 2, 4, 5, 8), (2, 2, 4, 6, 8), (2, 2, 4, 6, 8)),
    "value_heads": ((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 3)),
    "groups": ((2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 8)),
    "shared_batch": ((2, 4, 5, 8), (1, 4, 6, 8), (1, 4, 6, 8)),
    "shared_head": ((2, 4, 5, 8), (2, 1, 6, 8), (2, 1, 6, 8)),
    "query_batch": ((1, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8)),
}
MASKS = {
    "none": lambda lead: None,
    "causal": lambda lead: None,
    "bool": lambda lead: torch.rand(5, 6) > 0.4,
    "bool_all": lambda lead: torch.rand(*lead, 5, 6) > 0.4,
    "bool_keys": lambda lead: torch.rand(*[n if i == 0 else 1 for i, n in enumerate(lead)], 1, 6) > 0.4,
    "bool_queries": lambda lead: torch.rand(5, 1) > 0.4,
    "bool_strided": lambda lead: (torch.rand(6, 5) > 0.4).t(),
    "bool_expanded": lambda lead: (torch.rand(6) > 0.3).expand(5, 6),
    "bool_3d": lambda lead: torch.rand(*lead[-1:], 5, 6) > 0.4,
    "float": lambda lead: torch.randn(5, 6),
    "float_all": lambda lead: torch.randn(*lead, 5, 6),
    "float_3d": lambda lead: torch.randn(*lead[-1:], 5, 6),
    "float_empty_rows": lambda lead: torch.zeros(5, 6).masked_fill(torch.arange(5)[:, None] < 2, -torch.inf),
}


def _run(function, tensors, mask, device, **kwargs):
    leaves = [t.to(device).detach().requires_grad_(t.requires_grad) for t in tensors]
    mask = mask if mask is None else mask.to(device).detach().requires_grad_(mask.requires_grad)
    out = function(*leaves, attn_mask=mask, **kwargs)
    wanted = [t for t in [*leaves, mask] if t is not None and t.requires_grad]
    grads = torch.autograd.grad(out.square().sum(), wanted) if wanted else []
    return [t.detach().cpu() for t in [out, *grads]]


def _check(tensors, mask, tolerance=1e-4, **kwargs):
    expected = _run(F.scaled_dot_product_attention, tensors, mask, "cpu", **kwargs)
    actual = _run(F.scaled_dot_product_attention, tensors, mask, "xla", **kwargs)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=tolerance, atol=tolerance, equal_nan=True)


def _draw(sizes, dtype=torch.float32, requires_grad=True):
    torch.manual_seed(0)
    return [torch.randn(s).to(dtype).requires_grad_(requires_grad) for s in SIZES[sizes]]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("sizes", SIZES)
def test_masks_and_sizes(sizes, mask):
    tensors = _draw(sizes)
    kwargs = {"is_causal": mask == "causal", "enable_gqa": sizes == "groups"}
    _check(tensors, MASKS[mask](tensors[0].shape[:-2]), **kwargs)
    _check([t.detach() for t in tensors], MASKS[mask](tensors[0].shape[:-2]), scale=0.3, **kwargs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", ["none", "causal", "bool", "bool_all", "float"])
@pytest.mark.parametrize("sizes", ["plain", "rank3", "value_heads", "groups"])
def test_dtypes(sizes, mask, dtype):
    tensors = _draw(sizes, dtype)
    made = MASKS[mask](tensors[0].shape[:-2])
    made = made.to(dtype) if made is not None and made.is_floating_point() else made
    tolerance = 1e-5 if dtype == torch.float64 else 7e-2
    _check(tensors, made, tolerance, is_causal=mask == "causal", enable_gqa=sizes == "groups")


@pytest.mark.parametrize("layout", ["heads_last", "reversed", "expanded", "sliced", "contiguous_of_transposed"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_memory_orders(which, layout):
    torch.manual_seed(0)

    def lay_out(t):
        if layout == "heads_last":
            return t.transpose(1, 2).contiguous().transpose(1, 2)
        if layout == "reversed":
            return t.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
        if layout == "expanded":
            return t[..., :1].expand(t.shape)
        if layout == "sliced":
            return torch.cat([t, t], -1)[..., ::2]
        return t.transpose(2, 3).contiguous().transpose(2, 3).contiguous()

    leaves = [torch.randn(2, 4, 6, 8, requires_grad=True) for _ in range(3)]
    mask = torch.rand(6, 6) > 0.3

    def attention(*tensors, attn_mask):
        operands = [lay_out(t) if i == which else t for i, t in enumerate(tensors)]
        return F.scaled_dot_product_attention(*operands, attn_mask=attn_mask)

    for a, e in zip(*(_run(attention, leaves, mask, device) for device in ("xla", "cpu")), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("queries", [6, 3])
@pytest.mark.parametrize("heads_last", [False, True])
def test_gradients_lie_as_eager_has_them(heads_last, queries):
    def strides(device):
        made = [torch.ones(2, 4, length, 8) for length in (queries, 6, 6)]
        if heads_last:
            made = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in made]
        tensors = [t.to(device).requires_grad_() for t in made]
        out = F.scaled_dot_product_attention(*tensors)
        return [g.stride() for g in torch.autograd.grad(out.sum(), tensors)]

    assert strides("xla") == strides("cpu")


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("mask", ["causal", "bool", "bool_strided", "bool_expanded", "float"])
def test_dropout_lets_no_masked_key_through(sizes, mask):
    q, k, v = _draw(sizes)
    hidden = 3  # the key that no query may see
    made = MASKS[mask](q.shape[:-2])
    if mask == "causal":
        hidden = 5
    elif mask == "float":
        made = made.index_fill(-1, torch.tensor([hidden]), -torch.inf)
    else:
        made = made.clone().index_fill_(-1, torch.tensor([hidden]), False)
    with torch.no_grad():
        v[..., hidden, :] = 1e6
    leaves = [t.detach().to("xla").requires_grad_() for t in (q, k, v)]
    out = F.scaled_dot_product_attention(
        *leaves,
        attn_mask=made if made is None else made.to("xla"),
        dropout_p=0.2,
        is_causal=mask == "causal",
        enable_gqa=sizes == "groups",
    )
    assert out.abs().max().item() < 1e3
    out.square().sum().backward()
    assert leaves[2].grad[..., hidden, :].abs().max().item() == 0
    assert leaves[1].grad[..., hidden, :].abs().max().item() == 0


def test_dropout_keeps_the_mean():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 4, 8) for _ in range(3))
    mask = torch.rand(4, 4) > 0.3
    many = [t.expand(4000, 1, 4, 8).to("xla") for t in (q, k, v)]
    mean = F.scaled_dot_product_attention(*many, attn_mask=mask.to("xla"), dropout_p=0.3).mean(0, keepdim=True)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(mean.cpu(), expected, rtol=0.1, atol=0.1)


def test_mask_with_gradient():
    tensors = _draw("plain")
    _check(tensors, torch.randn(2, 4, 5, 6, requires_grad=True))
    _check(tensors, torch.randn(5, 6, requires_grad=True))


BAD = {
    "int_mask": {"attn_mask": torch.ones(5, 6, dtype=torch.int64)},
    "double_mask": {"attn_mask": torch.zeros(5, 6, dtype=torch.float64)},
    "mask_of_other_sizes": {"attn_mask": torch.ones(4, 6, dtype=torch.bool)},
    "mask_of_more_dims": {"attn_mask": torch.ones(3, 1, 1, 5, 6, dtype=torch.bool).expand(3, 3, 1, 5, 6)},
    "causal_and_mask": {"attn_mask": torch.ones(5, 6, dtype=torch.bool), "is_causal": True, "dropout_p": 0.1},
    "dropout": {"dropout_p": 1.5},
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_arguments_raise_as_in_eager(bad):
    tensors = _draw("plain", requires_grad=False)
    errors = []
    for device in ("cpu", "xla"):
        kwargs = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in BAD[bad].items()}
        with pytest.raises(Exception) as info:
            F.scaled_dot_product_attention(*(t.to(device) for t in tensors), **kwargs)
        errors.append(info)
    assert errors[0].type is errors[1].type
    assert str(errors[0].value).splitlines()[0] == str(errors[1].value).splitlines()[0]


def test_dtypes_that_differ_raise():
    q, k, v = (t.to("xla") for t in _draw("plain", requires_grad=False))
    with pytest.raises(RuntimeError, match="same dtype"):
        F.scaled_dot_product_attention(q, k.double(), v)


@pytest.mark.parametrize("dims", [3, 4, 5])
def test_keys_without_heads_raise(dims, device):
    query = torch.ones(2, 2, 4, 3, 8, device=device)[(0,) * (5 - dims)]
    keys = query.narrow(-3, 0, 0)
    with pytest.raises(RuntimeError, match="Number of heads in key and value must be greater than 0"):
        F.scaled_dot_product_attention(query, keys, query, enable_gqa=True)
    assert F.scaled_dot_product_attention(query, keys, keys, enable_gqa=True).shape == query.shape


@pytest.mark.parametrize("sizes,gqa", [("groups", True), ("plain", False)])
def test_no_fallback(sizes, gqa):
    tensors = [t.to("xla") for t in _draw(sizes, requires_grad=False)]
    met.clear_all()
    F.scaled_dot_product_attention(*tensors, enable_gqa=gqa).cpu()
    F.scaled_dot_product_attention(*tensors, dropout_p=0.1, enable_gqa=gqa, attn_mask=MASKS["bool"](()).to("xla")).cpu()
    assert {n for n in met.counter_names() if n.startswith("aten::")} == set()


# ---- Many queries: our own kernel by blocks of 64 queries and 128 keys ----
# Batch, heads, queries, keys, size of a head.
MANY = [
    (1, 2, 9, 9, 8),
    (2, 4, 64, 128, 64),
    (1, 3, 197, 197, 64),
    (1, 2, 70, 130, 80),
    (1, 1, 33, 1, 16),
    (2, 2, 17, 300, 6),
]
MANY_MASKS = {
    "none": lambda queries, keys: None,
    "causal": lambda queries, keys: None,
    "numbers": lambda queries, keys: torch.randn(queries, keys),
    "keys": lambda queries, keys: torch.randn(1, keys),
    "hidden": lambda queries, keys: (
        torch.zeros(queries, keys)
        .masked_fill(torch.rand(queries, keys) < 0.5, -torch.inf)
        .masked_fill(torch.arange(keys) > 0.6 * keys, -torch.inf)
        .masked_fill(torch.arange(queries)[:, None] < queries // 2, -torch.inf)
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mask", MANY_MASKS)
@pytest.mark.parametrize("size", MANY, ids=str)
def test_many_queries(device, size, mask, dtype):
    """Output and logsumexp, beside ATen's in float32; heads last in memory, as models have them."""
    torch.manual_seed(0)
    batch, heads, queries, keys, width = size
    tensors = [torch.randn(batch, n, heads, width).to(dtype).transpose(1, 2) for n in (queries, keys, keys)]
    added = MANY_MASKS[mask](queries, keys)
    added = None if added is None else added.to(dtype).expand(batch, 1, -1, -1)
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    wide = None if added is None else added.float()
    expected = attend(*(t.float() for t in tensors), 0.0, mask == "causal", attn_mask=wide, scale=0.3)
    added = None if added is None else added.to(device)
    actual = attend(*(t.to(device) for t in tensors), 0.0, mask == "causal", attn_mask=added, scale=0.3)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(actual[0].float().cpu(), expected[0], rtol=tolerance, atol=tolerance)
    # Plugins have another number where a query sees no key.
    sees = torch.tensor(True) if wide is None else (wide > -torch.inf).any(-1)
    sums = [torch.where(sees, logsumexp.cpu(), 0) for logsumexp in (actual[1], expected[1])]
    torch.testing.assert_close(*sums, rtol=tolerance, atol=1e-5 if dtype == torch.float32 else 1e-3)


def test_many_queries_keep_nan(device):
    """A query that is NaN has NaN; the others of its block do not."""
    query, key, value = torch.randn(3, 1, 2, 80, 16).unbind()
    query[0, 1, 70] = torch.nan
    expected = F.scaled_dot_product_attention(query, key, value)
    actual = F.scaled_dot_product_attention(query.to(device), key.to(device), value.to(device)).cpu()
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert actual.isnan().sum() == 16
