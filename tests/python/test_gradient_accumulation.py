"""gradient_accumulation: the gradients of the parts one by one, in one program."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import torch_xla
from torch_xla.experimental.gradient_accumulation import gradient_accumulation


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 20)
        self.frozen = nn.Linear(20, 20).requires_grad_(False)
        self.fc2 = nn.Linear(20, 5)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.fc2(self.frozen(torch.relu(self.fc1(x))))


@pytest.fixture
def models(device):
    model = Model()
    return copy.deepcopy(model).to(device), model


def batch():
    return torch.randn(4, 3, 10), torch.randn(4, 3, 5)


def in_python(model, inputs, targets):
    total = 0.0
    for x, y in zip(inputs, targets, strict=True):
        loss = mse_loss(model(x), y) / len(inputs)
        loss.backward()
        total += loss.item()
    return total


def check_gradients(ours, model):
    for p, q in zip(ours.parameters(), model.parameters(), strict=True):
        assert (p.grad is None) == (not p.requires_grad)
        if q.grad is not None:
            torch.testing.assert_close(p.grad.cpu(), q.grad)


def test_loss_and_gradients(device, models):
    ours, model = models
    inputs, targets = batch()
    for _ in range(2):  # the second time gradients are added
        loss = gradient_accumulation(lambda x, y: mse_loss(ours(x), y), (inputs.to(device), targets.to(device)), ours)
        assert loss.item() == pytest.approx(in_python(model, inputs, targets), rel=1e-5)
        check_gradients(ours, model)


def test_carried_tensors(device, models):
    ours, _ = models
    inputs, targets = (t.to(device) for t in batch())

    def step(x, y, count, drawn):
        return mse_loss(ours(x), y), count + 5, torch.cat([drawn[1:], torch.rand(1, device=device)])

    count, drawn = torch.tensor([5, 6], device=device), torch.zeros(4, device=device)
    loss, count, drawn = gradient_accumulation(step, (inputs, targets), ours, count, drawn)
    assert loss.dtype == torch.float32
    assert count.tolist() == [25, 26]
    assert len(set(drawn.tolist())) == 4


def test_is_one_node_that_compiles_once(device, models, compiles):
    ours, _ = models
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.1)
    inputs, targets = (t.to(device) for t in batch())
    losses = []
    for i in range(4):
        if i == 2:
            compiles.reset()
        optimizer.zero_grad()
        torch_xla.sync()
        loss = gradient_accumulation(lambda x, y: mse_loss(ours(x), y), (inputs, targets), ours)
        assert torch_xla._XLAC._pending_graph_text().count("= xla::loop(") == 1
        optimizer.step()
        losses.append(loss.item())
    assert compiles.value == 0
    assert losses == sorted(losses, reverse=True)


def test_refused_calls(device, models):
    ours, _ = models
    inputs, targets = (t.to(device) for t in batch())
    with pytest.raises(ValueError, match="cannot be empty"):
        gradient_accumulation(lambda: None, [], ours)
    with pytest.raises(ValueError, match=r"Element 1 .* inconsistent first dimension"):
        gradient_accumulation(lambda x, y: None, (inputs, targets[:2]), ours)
    with pytest.raises(ValueError, match=r"Element 0 .* is not a tensor"):
        gradient_accumulation(lambda x, y: None, (3, targets), ours)

    def writes(x, y, count):
        count += 1
        return mse_loss(ours(x), y), count

    with pytest.raises(AssertionError, match="in-place"):
        gradient_accumulation(writes, (inputs, targets), ours, torch.zeros((), device=device))

    def needs_a_value(x, y):
        loss = mse_loss(ours(x), y)
        return loss if loss.item() > 0 else -loss

    with pytest.raises(RuntimeError, match="body of a loop"):
        gradient_accumulation(needs_a_value, (inputs, targets), ours)
    assert all(p.grad is None for p in ours.parameters())
    assert inputs.cpu().shape == (4, 3, 10)
