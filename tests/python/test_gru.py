"""torch_xla.experimental.gru.GRU has the values, gradients and errors of torch.nn.GRU, and one size for all lengths."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import torch_xla
import torch_xla.debug.metrics as met
from torch_xla import _XLAC
from torch_xla.experimental.gru import GRU

FORMS = {
    "plain": {},
    "layers": {"num_layers": 3},
    "no_bias": {"num_layers": 2, "bias": False},
    "batch_first": {"num_layers": 2, "batch_first": True},
    "bidirectional": {"bidirectional": True},
}


def run(model: nn.Module, device, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Outputs, and gradients of inputs and weights."""
    model.to(device)
    leaves = [t.detach().to(device).requires_grad_() for t in inputs]
    outputs = model(*leaves)
    sum((t * torch.linspace(0.5, 2, t.numel(), device=device).view_as(t)).sum() for t in outputs).backward()
    gradients = [t.grad for t in (*leaves, *model.parameters())]
    return [t.detach().cpu() for t in (*outputs, *gradients)]


def check(form: dict, device, *inputs: torch.Tensor) -> None:
    plain, ours = nn.GRU(5, 4, **form), GRU(5, 4, **form)
    ours.load_state_dict(plain.state_dict())
    for got, want in zip(run(ours, device, *inputs), run(plain, "cpu", *inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_values_and_gradients(device, form):
    form = FORMS[form]
    states = form.get("num_layers", 1) * (1 + form.get("bidirectional", False))
    met.clear_all()
    check(form, device, torch.randn(7, 3, 5))
    check(form, device, torch.randn(7, 3, 5), torch.randn(states, 7 if form.get("batch_first") else 3, 4))
    check(form, device, torch.randn(6, 5), torch.randn(states, 4))
    assert [name for name in met.counter_names() if name.startswith("aten::")] == []


def test_graphs_of_all_lengths_have_one_size(device):
    def nodes(length: int) -> int:
        torch_xla.sync()
        output = model(torch.ones(length, 2, 5, device=device))[0]
        return _XLAC._get_xla_tensors_text([output]).count("\n")

    model = GRU(5, 4, num_layers=2).to(device)
    assert nodes(3) == nodes(300)


def test_training(device):
    torch.manual_seed(0)
    model = GRU(5, 4, num_layers=2, dropout=0.5).to(device)
    x = torch.randn(6, 8, 5, device=device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    assert not torch.equal(model(x)[0], model(x)[0]), "each call drops others"
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = (model(x)[0].mean(-1) - x.mean(-1)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    losses = torch.stack(losses).tolist()
    assert losses[-1] < 0.8 * losses[0]
    model.eval()
    assert torch.equal(model(x)[0], model(x)[0])


def test_what_scan_cannot_do(device):
    plain, ours = nn.GRU(5, 4), GRU(5, 4)
    ours.load_state_dict(plain.state_dict())
    x = torch.randn(3, 5)
    torch.testing.assert_close(ours(x)[0], plain(x)[0])
    got, want = ours.to(device)(pack_sequence([x.to(device), x[:2].to(device)])), plain(pack_sequence([x, x[:2]]))
    torch.testing.assert_close(got[0].data.cpu(), want[0].data)


@pytest.mark.parametrize(
    "error, match, sizes",
    [
        (ValueError, "Expected input to be 2D or 3D, got 4D", [(2, 2, 2, 5)]),
        (RuntimeError, "input.size.* must be equal to input_size", [(3, 2, 6)]),
        (RuntimeError, "the input has 3 dims, so hx should have as many, but has 2", [(3, 2, 5), (1, 4)]),
        (RuntimeError, "Expected hidden size", [(3, 2, 5), (1, 3, 4)]),
        (RuntimeError, "sequence length to be larger than 0", [(0, 2, 5)]),
    ],
)
def test_sizes_that_do_not_fit(device, error, match, sizes):
    with pytest.raises(error, match=match):
        GRU(5, 4).to(device)(*(torch.ones(size, device=device) for size in sizes))
