"""Mixtures of experts: histograms of integers, products of groups whose sizes are data, and a model that trains."""

import copy

import pytest
import torch
import torch.nn.functional as F
from eager import check, differentiated
from test_ops import fallen_operations
from torch import nn

import torch_xla
import torch_xla.debug.metrics as met


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int16, torch.uint8])
@pytest.mark.parametrize("shape", [(40,), (5, 8), (0,)])
def test_histc_of_integers(shape, dtype):
    torch.manual_seed(0)
    x = torch.randint(0, 9, shape, dtype=dtype)
    met.clear_all()
    for bins, low, high in [(8, 0, 7), (4, 2, 6), (3, 0, 8), (7, 1, 1)]:
        expected = torch.histc(x.double(), bins, low, high)
        actual = torch.histc(x.to("xla"), bins, low, high)
        assert actual.dtype == dtype
        assert actual.cpu().tolist() == expected.tolist()
    if shape == (40,):
        default = torch.histc(x.to("xla"), 5)
        assert default.cpu().tolist() == torch.histc(x.double(), 5).tolist()
        same = torch.full((4,), 3, dtype=dtype)
        assert torch.histc(same.to("xla"), 4).cpu().tolist() == torch.histc(same.double(), 4).tolist()
    assert not fallen_operations()


def test_histc_of_floats():
    torch.manual_seed(0)
    x = torch.cat([torch.randn(1000), torch.tensor([-2.0, 2.0, torch.nan, torch.inf, -torch.inf])])
    for args in [(10, -2, 2), (7, 0, 1), (100, -0.5, 1.5)]:
        assert torch.equal(torch.histc(x.to("xla"), *args).cpu(), torch.histc(x, *args))
    assert torch.equal(torch.histc(x[:50].to("xla"), 6).cpu(), torch.histc(x[:50], 6))


@pytest.mark.parametrize("args", [(0, 0, 1), (4, 3, 0)])
def test_histc_refuses(args):
    x = torch.ones(4)
    with pytest.raises(RuntimeError) as expected:
        torch.histc(x, *args)
    with pytest.raises(RuntimeError) as actual:
        torch.histc(x.to("xla"), *args)
    assert str(actual.value) == str(expected.value)


def _operands(form):
    sizes = {
        "2d3d": ((16, 8), (3, 8, 16)),
        "3d2d": ((3, 4, 8), (8, 16)),
        "2d2d": ((4, 16), (16, 8)),
        "3d3d": ((3, 4, 8), (3, 8, 16)),
        "transposed_weights": ((16, 8), (3, 16, 8)),
    }[form]
    return [torch.randn(s) for s in sizes]


def _grouped(form, a, b, offsets):
    b = b.transpose(1, 2) if form == "transposed_weights" else b
    return F.grouped_mm(a, b, offs=None if form == "3d3d" else offsets)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", ["2d3d", "3d2d", "2d2d", "3d3d", "transposed_weights"])
def test_grouped_products(form, dtype, compiles):
    torch.manual_seed(0)
    tensors = [t.to(dtype) for t in _operands(form)]
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    met.clear_all()
    for step, ends in enumerate([[4, 9, 16], [0, 16, 16], [16, 16, 16], [5, 5, 16], [1, 2, 16]]):

        def call(a, b, ends=ends):
            return _grouped(form, a, b, torch.tensor(ends, dtype=torch.int32).to(a.device))

        check(differentiated(call, *tensors), tolerance=tolerance)
        if step == 0:
            compiles.reset()
    assert compiles.value == 0
    assert not fallen_operations()


def test_rows_after_the_last_group_are_zero():
    a, b = torch.ones(6, 8), torch.ones(2, 8, 4)
    out = F.grouped_mm(a.to("xla"), b.to("xla"), offs=torch.tensor([1, 4], dtype=torch.int32).to("xla"))
    assert out.sum(1).cpu().tolist() == [32, 32, 32, 32, 0, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b, o: torch._grouped_mm(a, b, o.long()),
        lambda a, b, o: torch._grouped_mm(a, b),
        lambda a, b, o: torch._grouped_mm(a, b, o[:2]),
        lambda a, b, o: torch._grouped_mm(a.double(), b.double(), o),
        lambda a, b, o: torch._grouped_mm(a, b[:, 1:], o),
        lambda a, b, o: torch._grouped_mm(a, b, o, bias=a[0]),
        lambda a, b, o: torch._grouped_mm(a, b, o, out_dtype=torch.bfloat16),
    ],
)
def test_grouped_products_refuse(call):
    tensors = torch.randn(16, 8), torch.randn(3, 8, 12), torch.tensor([4, 9, 16], dtype=torch.int32)
    with pytest.raises(RuntimeError) as expected:
        call(*tensors)
    with pytest.raises(RuntimeError) as actual:
        call(*(t.to("xla") for t in tensors))
    assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]


class Experts(nn.Module):
    """Experts as the transformers library computes them: pairs sorted by expert, one product of groups for all."""

    def __init__(self, width=16, hidden=32, experts=4, chosen=2):
        super().__init__()
        self.experts, self.chosen = experts, chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.gate_up = nn.Parameter(torch.randn(experts, 2 * hidden, width) / 4)
        self.down = nn.Parameter(torch.randn(experts, width, hidden) / 4)

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        weights, experts = self.router(x).softmax(-1).topk(self.chosen, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        pairs, order = torch.sort(experts.reshape(-1))
        counted = pairs.float() if x.device.type == "cpu" else pairs.int()
        counts = torch.histc(counted, bins=self.experts, min=0, max=self.experts - 1)
        ends = counts.cumsum(0, dtype=torch.int32)
        y = x[order // self.chosen]
        gate, up = F.grouped_mm(y, self.gate_up.transpose(-2, -1), offs=ends).chunk(2, -1)
        y = F.grouped_mm(F.silu(gate) * up, self.down.transpose(-2, -1), offs=ends)
        y = y * weights.reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=x.device))
        return y[back].view(len(x), self.chosen, -1).sum(1).view(shape)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16)
        self.experts, self.head = Experts(), nn.Linear(16, 20)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(x + self.experts(self.norm(x)))


def test_training(compiles):
    torch.manual_seed(0)
    model, batches = Mixture(), [torch.randint(0, 20, (3, 8)) for _ in range(20)]
    losses = {}
    met.clear_all()
    for device in ("cpu", "xla"):
        trained = copy.deepcopy(model).to(device)
        optimizer = torch.optim.AdamW(trained.parameters(), lr=0.01)
        losses[device] = []
        for step, tokens in enumerate(batches):
            tokens = tokens.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(trained(tokens).flatten(0, 1), tokens.roll(1, 1).flatten())
            loss.backward()
            optimizer.step()
            losses[device].append(loss.detach())
            if step == 3:
                compiles.reset()
        assert compiles.value == 0
        losses[device] = torch.stack(losses[device]).cpu()
    torch.testing.assert_close(losses["xla"], losses["cpu"], rtol=1e-3, atol=1e-4)
    assert not fallen_operations()
    torch_xla.sync()
