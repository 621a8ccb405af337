"""torch.utils.checkpoint and fork_rng on the device: what is computed again draws the same random numbers."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from torch_xla.distributed.fsdp import checkpoint_module
from torch_xla.distributed.fsdp.utils import apply_xla_patch_to_nn_linear


def _masks_of(function, x, **kwargs):
    """The gradient of dropout's input is the mask that backward used; the output shows that of forward."""
    x = x.detach().requires_grad_()
    out = function(x, **kwargs)
    torch.rand(3, device=x.device)  # moves the generator between forward and backward
    out.sum().backward()
    return out.detach().cpu() != 0, x.grad.cpu() != 0


@pytest.mark.parametrize("reentrant", [True, False])
def test_dropout(device, reentrant):
    x = torch.ones(64, 64, device=device)
    forward, backward = _masks_of(lambda x: checkpoint(lambda y: F.dropout(y, 0.5), x, use_reentrant=reentrant), x)
    assert torch.equal(forward, backward)
    assert 0.4 < forward.float().mean() < 0.6


@pytest.mark.parametrize("reentrant", [True, False])
def test_random_numbers_go_on_after_it(device, reentrant):
    x = torch.ones(64, 64, device=device)
    torch.manual_seed(3)
    plain = F.dropout(F.dropout(x, 0.5), 0.5).cpu(), torch.rand(8, device=device).cpu()
    torch.manual_seed(3)
    leaf = x.clone().requires_grad_()
    out = checkpoint(lambda y: F.dropout(F.dropout(y, 0.5), 0.5), leaf, use_reentrant=reentrant)
    out.sum().backward()
    assert torch.equal(out.detach().cpu(), plain[0])
    assert torch.equal(torch.rand(8, device=device).cpu(), plain[1])


def test_nested(device):
    def inner(x):
        return F.dropout(x, 0.5) + checkpoint(lambda y: F.dropout(y, 0.5), x, use_reentrant=False)

    x = torch.ones(32, 32, device=device, requires_grad=True)
    out = checkpoint(lambda y: checkpoint(inner, y, use_reentrant=False), x, use_reentrant=False)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(out.detach().cpu(), grad.cpu())  # both are twice the number of masks that let an element through


def test_sequential(device):
    layers = nn.Sequential(*[nn.Dropout(0.3) for _ in range(4)])
    x = torch.ones(32, 32, device=device, requires_grad=True)
    out = checkpoint_sequential(layers, 2, x, use_reentrant=False)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(out.detach().cpu(), grad.cpu())


def test_without_the_state_the_masks_differ(device):
    x = torch.ones(64, 64, device=device)
    kwargs = {"use_reentrant": False, "preserve_rng_state": False}
    forward, backward = _masks_of(lambda x: checkpoint(lambda y: F.dropout(y, 0.5), x, **kwargs), x)
    assert not torch.equal(forward, backward)


class Block(nn.Module):
    def __init__(self, width=16, p=0.0):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, dropout=p, batch_first=True)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 32), nn.GELU(), nn.Dropout(p), nn.Linear(32, width)
        )

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(x)


def _train(device, reentrant, p):
    torch.manual_seed(0)
    model = nn.ModuleList([Block(p=p) for _ in range(2)]).to(device)
    x, target = torch.randn(4, 5, 16).to(device), torch.randn(4, 5, 16).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    torch.manual_seed(1)
    for _ in range(20):
        optimizer.zero_grad()
        y = x.detach().requires_grad_()  # the reentrant form wants an input with gradient
        for block in model:
            y = block(y) if reentrant is None else checkpoint(block, y, use_reentrant=reentrant)
        loss = F.mse_loss(y, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()


@pytest.mark.parametrize("reentrant", [True, False])
def test_training(device, reentrant):
    torch.testing.assert_close(_train(device, reentrant, 0.0), _train("cpu", None, 0.0), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("reentrant", [True, False])
def test_training_with_dropout(device, reentrant):
    torch.testing.assert_close(_train(device, reentrant, 0.2), _train(device, None, 0.2), rtol=1e-3, atol=1e-4)


def test_a_checkpointed_module_runs_whole_again(device):
    class Counts(torch.nn.Linear):
        calls = 0

        def forward(self, x):
            y = super().forward(x).sin()
            self.calls += 1
            return y

    module = checkpoint_module(Counts(4, 4).to(device))
    module(torch.randn(4, 4, device=device, requires_grad=True)).sum().backward()
    assert module.calls == 2


@pytest.mark.parametrize("shape", [(2,), (4, 2), (4, 3, 2)])
def test_linear_layers_by_a_function(device, shape):
    layers = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3, bias=False))
    x = torch.randn(*shape)
    expected = layers(x)
    assert apply_xla_patch_to_nn_linear(layers.to(device)) is layers
    torch.testing.assert_close(layers(x.to(device)).cpu(), expected)
    apply_xla_patch_to_nn_linear(layers, lambda layer, input: input)
    torch.testing.assert_close(layers(x.to(device)).cpu(), expected, msg="a layer is patched once")
