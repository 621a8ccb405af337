"""torch_xla.experimental.bucketing: values and gradients of the true sizes, by one program for each bucket."""


import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

from torch_xla.experimental.bucketing import bucketed

LENGTH = 5  # in a bucket of 8
DIMS = {"x": {"length": 1}, "y": {"length": 1}, "ids": {"length": 1}}


def inputs() -> dict[str, torch.Tensor]:
    """x, y: (2, length, 4); ids below 6: (2, length); w: (4, 4); b: (4); table: (6, 4)."""
    made = torch.Generator().manual_seed(3)
    x, y = (torch.randn(2, LENGTH, 4, generator=made) for _ in range(2))
    w, b, table = (torch.randn(*size, generator=made) for size in ((4, 4), (4,), (6, 4)))
    ids = torch.randint(6, (2, LENGTH), generator=made)
    return {"x": x.abs() + 0.1, "y": y, "ids": ids, "w": w, "b": b, "table": table}


def differentiated(function, device: str):
    """A step: what `function` gives, and the gradients of w, b and table that its results have."""

    def step(x, y, ids, w, b, table):
        result = function(x, y, ids, w, b, table)
        results = tree_leaves(result)
        loss = sum((r.sin() * 0.5 + r).sum() for r in results if r.is_floating_point())
        if isinstance(loss, torch.Tensor) and loss.requires_grad:
            loss.backward()
        return results

    return step if device == "cpu" else bucketed(step, DIMS)


def check(function, device, rtol=1e-4, atol=1e-5):
    """Compares results and the gradients of all floating inputs with eager's."""
    found = {}
    for place in ("cpu", device):
        given = inputs()
        for name in ("x", "y"):
            given[name].requires_grad_()
        for name in ("w", "b", "table"):
            given[name] = given[name].to(place).requires_grad_()
        results = differentiated(function, str(place))(**given)
        gradients = {name: t.grad for name, t in given.items() if t.grad is not None}
        found[place] = ([r.detach().cpu() for r in results], {k: g.cpu() for k, g in gradients.items()})
    torch.testing.assert_close(found[device], found["cpu"], rtol=rtol, atol=atol)


def attention(x, y, **kwargs):
    """One head of length 4 for each channel pair."""
    q, k, v = (t[:, None] for t in (x, y, x * y))
    return F.scaled_dot_product_attention(q, k, v, **kwargs)


def hand_made_attention(x, y, w):
    """As in many programs: products, a triangle of the size, and softmax."""
    _, length, channels = x.shape
    scores = (x @ w @ y.transpose(-2, -1)) / channels**0.5
    seen = torch.tril(torch.ones(length, length, device=x.device))
    return scores.masked_fill(seen == 0, float("-inf")).softmax(-1) @ y


VALUES = {
    "pointwise": lambda x, y, ids, w, b, table: (x.log() + y * b).exp() / (1 / x).clamp(max=3),
    "numbers": lambda x, y, ids, w, b, table: x / x.shape[1] + y.sum() / (x.shape[0] * x.shape[1]),
    "in_place": lambda x, y, ids, w, b, table: (x * 1).add_(y).mul_(2).sum(),
    "where": lambda x, y, ids, w, b, table: torch.where(y > 0, x, b),
    "dtypes": lambda x, y, ids, w, b, table: (x.double().sum(1).float(), y.to(x.dtype).mean()),
    "linear": lambda x, y, ids, w, b, table: F.linear(1 / x, w, b),
    "linear_of_rows": lambda x, y, ids, w, b, table: F.linear(x.log().flatten(0, 1), w, b).square().mean(0),
    "linear_over_length": lambda x, y, ids, w, b, table: F.linear(x.mT, y[0].mT),
    "matmul": lambda x, y, ids, w, b, table: x.mT @ y,
    "matmul_over_vector": lambda x, y, ids, w, b, table: x[0].mT @ y[1, :, 0],
    "bmm": lambda x, y, ids, w, b, table: torch.bmm(x, y.transpose(1, 2)).softmax(-1).bmm(y),
    "addmm": lambda x, y, ids, w, b, table: torch.addmm(b, x[0].t(), y[0]),
    "einsum": lambda x, y, ids, w, b, table: torch.einsum("btc,bsc,bsd->btd", x, y, x),
    "einsum_dots": lambda x, y, ids, w, b, table: torch.einsum("...tc,cd", x, w),
    "outer": lambda x, y, ids, w, b, table: torch.outer(x[0, :, 0], b),
    "embedding": lambda x, y, ids, w, b, table: F.embedding(ids, table) + x,
    "positions": lambda x, y, ids, w, b, table: x + F.embedding(torch.arange(x.shape[1], device=x.device), table),
    "table_rows": lambda x, y, ids, w, b, table: y * table.repeat(2, 1)[None, : x.size(1)],
    "table_index": lambda x, y, ids, w, b, table: table[ids].sum(1),
    "one_hot": lambda x, y, ids, w, b, table: F.one_hot(ids, 6).sum(1),
    "layer_norm": lambda x, y, ids, w, b, table: F.layer_norm(x, (4,), b, w[0]),
    "rms_norm": lambda x, y, ids, w, b, table: F.rms_norm(x, (4,), b),
    "batch_norm": lambda x, y, ids, w, b, table: F.batch_norm(y.mT, None, None, b, w[0], training=True),
    "dropout": lambda x, y, ids, w, b, table: F.dropout(x, 0.5, training=False),
    "sum": lambda x, y, ids, w, b, table: (x.sum(), y.sum(1), x.sum(2), x.sum((0, 1), keepdim=True)),
    "mean": lambda x, y, ids, w, b, table: (x.mean(), y.mean(dim=1), x.mean(-1), x.mean((1, 2), keepdim=True)),
    "mean_of_rows": lambda x, y, ids, w, b, table: (x @ w).reshape(-1, 4).mean(0),
    "prod": lambda x, y, ids, w, b, table: (x.prod(1), y.log1p().nansum(1)),
    "extremes": lambda x, y, ids, w, b, table: (x.amax(1), (-x).amax(), y.amin((0, 1)), (-x).max(), x.min()),
    "places": lambda x, y, ids, w, b, table: ((-x).max(1), x.argmin(1), (-x).argmax(dim=1, keepdim=True), ids.max(1)),
    "topk": lambda x, y, ids, w, b, table: (-x).topk(2, dim=1),
    "var": lambda x, y, ids, w, b, table: (x.var(), y.std(1), x.var(1, correction=0), x.var((0, 1), keepdim=True)),
    "var_mean": lambda x, y, ids, w, b, table: torch.var_mean(x, 1),
    "norms": lambda x, y, ids, w, b, table: (x.norm(), y.norm(1, 1), torch.linalg.vector_norm(x, dim=(0, 1))),
    "normalize": lambda x, y, ids, w, b, table: F.normalize(x, dim=1) + F.normalize(y, dim=2),
    "logic": lambda x, y, ids, w, b, table: ((x > 0).all(1), (y > 9).any(), (ids > 0).count_nonzero(1)),
    "logsumexp": lambda x, y, ids, w, b, table: (x.logsumexp(1), y.logsumexp((0, 2))),
    "softmax": lambda x, y, ids, w, b, table: (x.softmax(1), F.log_softmax(y, dim=1), x.softmax(-1)),
    "softmax_log": lambda x, y, ids, w, b, table: (x.softmax(1).log() * y).sum(),
    "cumsum": lambda x, y, ids, w, b, table: (x.cumsum(1), y.cumsum(-1)),
    "attention": lambda x, y, ids, w, b, table: attention(x, y),
    "attention_causal": lambda x, y, ids, w, b, table: attention(x, y, is_causal=True),
    "attention_mask": lambda x, y, ids, w, b, table: attention(x, y, attn_mask=((ids > 1) | (ids < 1))[:, None, None]),
    "attention_bias": lambda x, y, ids, w, b, table: attention(x, y, attn_mask=(x @ y.mT)[:, None]),
    "attention_to_others": lambda x, y, ids, w, b, table: F.scaled_dot_product_attention(w[None], x[:1], y[:1]),
    "attention_by_hand": lambda x, y, ids, w, b, table: hand_made_attention(x, y, w),
    "cross_entropy": lambda x, y, ids, w, b, table: F.cross_entropy((x @ table.mT).view(-1, 6), ids.view(-1)),
    "cross_entropy_ignores": lambda x, y, ids, w, b, table: F.cross_entropy(
        (x @ table.mT).transpose(1, 2), ids, weight=table[:, 0].detach().abs(), ignore_index=2, label_smoothing=0.1
    ),
    "cross_entropy_each": lambda x, y, ids, w, b, table: F.cross_entropy(
        (x @ table.mT).transpose(1, 2), ids, reduction="none"
    ),
    "cross_entropy_sum": lambda x, y, ids, w, b, table: F.cross_entropy(
        (x @ table.mT).flatten(0, 1), ids.flatten(), reduction="sum"
    ),
    "cross_entropy_probabilities": lambda x, y, ids, w, b, table: F.cross_entropy(
        x.reshape(-1, 4), y.softmax(-1).reshape(-1, 4)
    ),
    "nll_loss": lambda x, y, ids, w, b, table: F.nll_loss(F.log_softmax(x @ table.mT, -1).transpose(1, 2), ids),
    "next_token": lambda x, y, ids, w, b, table: F.cross_entropy(
        (x @ table.mT)[:, :-1].reshape(-1, 6), ids[:, 1:].reshape(-1)
    ),
    "losses": lambda x, y, ids, w, b, table: (
        F.mse_loss(x, y),
        F.l1_loss(x, y, reduction="sum"),
        F.smooth_l1_loss(x, y, reduction="none"),
        F.huber_loss(y, b.expand_as(y)),
        F.binary_cross_entropy_with_logits(y, x.clamp(max=1)),
        F.kl_div(y, x, reduction="batchmean"),
    ),
    "shapes": lambda x, y, ids, w, b, table: (
        x.view(2, x.shape[1], 2, 2).transpose(1, 2).flatten(2),
        y.permute(1, 0, 2).reshape(-1, 4),
        x.unsqueeze(0).squeeze(0).unflatten(2, (2, 2)),
        b.expand(2, x.shape[1], 4) * x,
    ),
    "parts": lambda x, y, ids, w, b, table: (
        x[:, 0],
        x[:, -1],
        x[:, 1:3],
        y[:, -2:],
        x[..., 1],
        x[:, None, 1:-1],
        y[1],
    ),
    "shifted": lambda x, y, ids, w, b, table: (x[:, 1:] - x[:, :-1], x[:, : x.shape[1] - 2] * y[:, 2:]),
    "joined": lambda x, y, ids, w, b, table: (
        torch.cat([b.expand(2, 1, 4), x], 1).mean(1),
        torch.stack([x, y], -1),
        torch.cat([x, y], -1),
        torch.cat([b.expand(2, 1, 4), x], 1)[:, 1:],
    ),
    "chunks": lambda x, y, ids, w, b, table: [*x.chunk(2, -1), *y.split(1), x.flip(2), F.glu(y)],
    "gathered": lambda x, y, ids, w, b, table: (x.gather(2, (ids % 4)[..., None]), x[0][ids % 3], x[:, ids[0] % 2]),
    "from_the_end": lambda x, y, ids, w, b, table: x[:, torch.tensor([-1, 0, -2], device=x.device)],
    "made": lambda x, y, ids, w, b, table: (
        torch.ones(x.shape[1], device=x.device).sum(),
        x.new_full((2, x.shape[1]), 2.0).mean(1),
        torch.zeros_like(x).add_(1).sum(),
    ),
    "written": lambda x, y, ids, w, b, table: with_writes(x * 1, y),
}


def with_writes(x, y):
    """Writes into parts."""
    x[:, 0] = 7.0
    x[..., 1:3] = y[..., :2]
    x[x < 0] = 0.0
    return x


@pytest.mark.parametrize("name", VALUES)
def test_values_and_gradients_are_those_of_the_true_size(device, name):
    check(VALUES[name], device)
