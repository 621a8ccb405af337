"""torch_xla.experimental.bucketing: values and gradients of the true sizes, by one program for each bucket."""

import inspect
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import torch_xla
from torch_xla.experimental.bucketing import bucketed
from torch_xla.experimental.scan import scan

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


class Block(nn.Module):
    """A layer of a small GPT."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        # Without a bias: that of keys has a gradient of rounding errors alone, which AdamW makes steps of.
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        rows, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).split(width, dim=-1)
        q, k, v = (t.view(rows, length, self.heads, width // self.heads).transpose(1, 2) for t in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.norms[1](x))


class SmallGPT(nn.Module):
    """Tokens to logits."""

    def __init__(self, tokens: int = 40, width: int = 16):
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.places = nn.Embedding(64, width)
        self.blocks = nn.Sequential(Block(width, 2), Block(width, 2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))


def training(device: str):
    """A model, and its training step."""
    torch.manual_seed(4)
    model = SmallGPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-6)

    def step(ids, labels):
        logits = model(ids)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, step


def test_a_training_step_is_a_program_for_each_bucket(device, compiles):
    ours, step = training(str(device))
    eager, eager_step = training("cpu")
    step = bucketed(
        step, {name: {"batch": 0, "length": 1} for name in ("ids", "labels")}, {"length": [16, 32, 64], "batch": [4]}
    )
    torch_xla.sync()
    compiles.reset()
    made = torch.Generator().manual_seed(5)
    for _ in range(30):
        rows, length = int(torch.randint(1, 5, (), generator=made)), int(torch.randint(2, 65, (), generator=made))
        ids, labels = torch.randint(40, (2, rows, length), generator=made)
        labels[:, ::5] = -1
        torch.testing.assert_close(step(ids, labels).cpu(), eager_step(ids, labels), rtol=1e-4, atol=1e-4)
    assert compiles.value <= 3 + 1  # the first step makes the optimizer's state
    for ours_now, eager_now in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours_now.cpu(), eager_now, rtol=1e-4, atol=1e-4)


class Attention(nn.Module):
    """nn.MultiheadAttention, with a mask of keys."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, key_padding_mask=x[..., 0] > 1)


MODULES = {
    "transformer": (
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        (3, 5, 4),
        {"batch": 0, "length": 1},
    ),
    "attention": (Attention, (3, 5, 4), {"batch": 0, "length": 1}),
    "images": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(8, 3), nn.BatchNorm1d(3),
        ),
        (5, 3, 8, 8),
        {"batch": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_modules(device, name):
    make, shape, dims = MODULES[name]
    results = []
    for place in ("cpu", str(device)):
        torch.manual_seed(6)
        module = make().to(place)
        run = (
            module
            if place == "cpu"
            else bucketed(module, {next(iter(inspect.signature(module.forward).parameters)): dims})
        )
        result = tree_leaves(run(torch.randn(shape)))[0]
        result.square().mean().backward()  # of a result that is cut, out of the function
        results.append([result, *(p.grad for p in module.parameters()), *module.buffers()])
    for ours, eager in zip(*reversed(results), strict=True):
        torch.testing.assert_close(ours.cpu(), eager, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_within_the_function(device, reentrant):
    def part(x, y, w):
        return (x @ w).softmax(1).mul(y).mean(1)

    def function(x, y, ids, w, b, table):
        return checkpoint(part, x, y, w, use_reentrant=reentrant)

    check(function, device)


def test_gradients_of_padded_results(device):
    def function(x, w):
        rows = (x @ w).square().sum(-1)
        (grad,) = torch.autograd.grad(rows, w, torch.ones_like(rows), retain_graph=True)
        x_grad = torch.autograd.grad(rows.sum(), x, retain_graph=True)[0]
        rows.backward(torch.ones_like(rows))
        return grad, x_grad, w.grad

    made = torch.Generator().manual_seed(7)
    x, w = torch.randn(2, 5, 4, generator=made), torch.randn(4, 4, generator=made)
    ours = bucketed(function, {"x": {"length": 1}})(x.clone().requires_grad_(), w.to(device).requires_grad_())
    eager = function(x.requires_grad_(), w.requires_grad_())
    torch.testing.assert_close([t.cpu() for t in ours], list(eager), rtol=1e-4, atol=1e-4)


def test_results_are_cut_without_a_program_for_each_size(device, compiles):
    w = torch.randn(4, 3, device=device)
    function = bucketed(
        lambda x: {"rows": (x @ w).relu(), "length": x.shape[1]}, {"x": {"length": 1}}, {"length": [64]}
    )
    for length in range(40, 52):
        # Those on the device go by the host.
        x = torch.randn(2, length, 4).to(device if length % 2 else "cpu")
        result = function(x)
        assert result["length"] == length
        torch.testing.assert_close(result["rows"].cpu(), (x.cpu() @ w.cpu()).relu(), rtol=1e-4, atol=1e-5)
    assert compiles.value <= 2


def test_numbers_of_sizes(device):
    seen = []

    def function(x):
        rows, length = x.size(0), x.shape[1]
        seen.append((rows * length == x.numel(), length == x.shape[1], length > 1, length - 1 == x[:, 1:].shape[1]))
        return x.sum() / (rows * length), length, x.shape.numel(), x.new_ones(()) * length

    mean, length, number, tensor = bucketed(function, {"x": {"length": 1}})(torch.ones(2, 5))
    assert (mean.item(), length, number, tensor.item()) == (1.0, 5, 10, 5.0)
    assert seen == [(True,) * 4]


REFUSED = {
    "no_rule": (lambda x: torch.sort(x, 1), r"torch.sort has no rule for a padded dim that it mixes \(dim 1\) at .*"),
    "no_rule_at_all": (lambda x: torch.cdist(x, x), r"cdist has no rule for padded dims: \(2, 8 \[length\], 4\)"),
    "value": (lambda x: x.tolist(), "tolist has no rule"),
    "mask": (lambda x: x[x > 0], "masks as an index"),
    "other_dims": (lambda x: x + torch.ones(8, 1, device=x.device), "padded dims that meet others"),
    "cut_in_pieces": (lambda x: x.view(2, 4, -1), "of other dims than the padded ones"),
    "normalized": (lambda x: F.layer_norm(x, x.shape[1:]), "normalization of padded dims"),
    "quotient": (lambda x: x.shape[1] // 2, "floordiv of the size of a dim .* depends on the padding"),
    "float": (lambda x: float(x.shape[1]), "float of the size"),
    "comparison": (lambda x: x.shape[1] > 6, "a comparison with 6"),
    "len": (lambda x: len(x[0]), "the length of a padded dim"),
    "argument": (lambda x: x.add_(1), "memory of a tensor without this padding"),
    "buffer": (lambda x: x.new_zeros(2, 9, 4)[:, : x.shape[1]].copy_(x), "memory of a tensor without"),
    "transforms": (lambda x: torch.vmap(torch.sum)(x), "transforms of torch.func"),
    "hook": (lambda x: (x * x.new_ones(4, requires_grad=True)).register_hook(print), "register_hook"),
    "number_of_classes": (lambda x: F.one_hot(torch.zeros(2, 1).long(), x.shape[1]), "one_hot .* the size 8 .true: 5."),
    "new_size": (lambda x: F.interpolate(x.new_ones(1, 1, 4), size=x.shape[1]), "interpolate .* the size 8 .true: 5."),
    "element": (lambda x: x.new_ones(9)[x.shape[1] - 1], "an element by the size of a padded dim"),
    "frequency": (
        lambda x: F.embedding(x[..., 0].long() * 0, x.new_ones(3, 4), scale_grad_by_freq=True),
        "gradients by frequency",
    ),
    "loop": (lambda x: scan(lambda c, row: (c, row.mean()), x.new_zeros(()), x), "loops have no rule for padded dims"),
    "merged_places": (lambda x: x.view(-1, 4).argmax(0), "places in padded dims that are merged"),
    "before_others": (lambda x: torch.cat([x, x], 1), "padding that comes before other elements"),
    "weighted": (lambda x: F.mse_loss(x, x, weight=x), "weights"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused(device, name):
    function, message = REFUSED[name]
    with pytest.raises(NotImplementedError, match=message):
        bucketed(function, {"x": {"length": 1}})(torch.randn(2, 5, 4))


@pytest.mark.parametrize("function", [lambda x: x[:, 5], lambda x: [x[:, t] for t in range(x.shape[1])]])
def test_places_that_do_not_exist(device, function):
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 1 with size 5"):
        bucketed(function, {"x": {"length": 1}})(torch.randn(2, 5, 4))


def test_more_is_cut_off_than_there_is(device):
    with pytest.raises(ValueError, match="1 more elements are cut off a padded dim than it has"):
        bucketed(lambda x: x[:, 4:], {"x": {"length": 1}}, {"length": [8]})(torch.randn(2, 3))


def test_a_tensor_of_another_call(device):
    kept = []
    bucketed(lambda x: kept.append(x * 2), {"x": {"length": 1}})(torch.randn(2, 5))
    with pytest.raises(RuntimeError, match=r"a padded tensor of another call is used at .*test_bucketing"):
        bucketed(lambda x: x + kept[0], {"x": {"length": 1}})(torch.randn(2, 5))


def test_arguments(device):
    with pytest.raises(ValueError, match="'y' is no parameter of the function"):
        bucketed(torch.nn.Linear(4, 4), {"y": {"length": 1}})
    with pytest.raises(ValueError, match=r"sizes of 'rows', of .'length'.: .8."):
        bucketed(torch.nn.Linear(4, 4), {"input": {"length": 1}}, {"rows": [8]})
    function = bucketed(lambda x, y=None: x.sum(), {"x": {"length": 1}, "y": {"length": 0}}, {"length": [4, 8]})
    assert function(torch.ones(2, 3)).item() == 6
    with pytest.raises(ValueError, match="size 9 of 'length' is above the largest bucket, 8"):
        function(torch.ones(2, 9))
    with pytest.raises(ValueError, match="a dim of 'length' has no elements, and one is needed"):
        function(torch.ones(2, 0))
    with pytest.raises(ValueError, match="dim 0 of 'y' has size 4, other dims of 'length' 3"):
        function(torch.ones(2, 3), torch.ones(4))
    with pytest.raises(TypeError, match="argument 'x' must be a tensor, not list"):
        function([1.0])


def test_threads(device):
    function = bucketed(lambda x: x.mean(1), {"x": {"length": 1}})

    def run(length):
        return function(torch.arange(float(length)).expand(2, length).contiguous()).cpu()

    with ThreadPoolExecutor(4) as pool:
        for length, result in zip(range(2, 34), pool.map(run, range(2, 34)), strict=True):
            torch.testing.assert_close(result, torch.full((2,), (length - 1) / 2))


def test_the_documents_program(run_python):
    text = (Path(__file__).parents[2] / "docs" / "changing_shapes.md").read_text()
    (source,) = (code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "bucketed" in code)
    (told,) = re.findall(r"This trains on 20 lengths with (\d+) programs", text)
    assert run_python(source, XLA_PERSISTENT_CACHE_PATH="").split() == [told]
