"""Indices, masks and probabilities of the CPU work on tensors of the device, as on CUDA; other operands do not mix."""

import itertools

import pytest
import torch
from eager import check
from torch import nn

import torch_xla
import torch_xla.debug.metrics as met
from torch_xla import _XLAC

PLACES = torch.tensor([2, 0, 1])
ROWS = torch.tensor([True, False, True, True])
CELLS = torch.tensor([[True, False, True], [False] * 3, [True] * 3, [False, True, False]])

INDICES = {
    "places": PLACES,
    "int32": PLACES.int(),
    "negative": torch.tensor([-1, -4]),
    "none": torch.zeros(0, dtype=torch.long),
    "number": torch.tensor(2),
    "pairs": (PLACES, PLACES),
    "broadcast": (PLACES[:, None], torch.tensor([0, 2])),
    "rows": ROWS,
    "rows_and_place": (ROWS, torch.tensor(1)),
    "cells": CELLS,
    "beside_slice": (slice(None), PLACES),
    "rows_beside_slice": (ROWS, slice(1, None)),
}


def numbers(device):
    return (torch.arange(12.0).reshape(4, 3) / 4).to(device)


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_read_by_indices_of_the_cpu(device, index):
    check(lambda d: numbers(d)[index], "read")


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_write_by_indices_of_the_cpu(device, index):
    def write(d, value):
        x = numbers(d)
        x[index] = value(x[index]) if callable(value) else value
        return x

    for value in (7.0, torch.tensor(5.0), lambda old: old * -2):
        check(lambda d: write(d, value), "write")
    check(lambda d: numbers(d).index_put_((PLACES,), numbers(d)[:3], accumulate=True), "accumulate")


def test_indices_of_both_devices(device):
    check(lambda d: numbers(d)[PLACES.to(d), PLACES], "read")


@pytest.mark.parametrize("index", [PLACES, ROWS, (PLACES, PLACES)], ids=["places", "rows", "pairs"])
def test_gradient_by_indices_of_the_cpu(device, index):
    def gradient(d):
        x = numbers(d).requires_grad_()
        x[index].square().sum().backward()
        return x.grad

    check(gradient, "gradient")


def test_index_of_the_cpu_is_native(device):
    met.clear_all()
    x = numbers(device)
    x[PLACES] = x[PLACES] + 1
    x[ROWS] = 0
    torch_xla.sync(wait=True)
    assert not [name for name in met.counter_names() if name.startswith("aten::index")]


def test_probabilities_of_the_cpu(device):
    zero_or_one = torch.tensor([0.0, 1.0, 1.0, 0.0])
    check(lambda d: torch.empty(4, device=d).bernoulli_(zero_or_one), "bernoulli_")
    check(lambda d: torch.empty(3, 4, device=d).bernoulli_(zero_or_one), "bernoulli_, broadcast")
    check(lambda d: torch.empty(4, device=d).bernoulli_(torch.tensor(1.0)), "bernoulli_, a number")
    check(lambda d: torch.bernoulli(zero_or_one.to(d), out=torch.empty(4, device=d)), "bernoulli, out")


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.gather(0, torch.zeros(1, 3, dtype=torch.long)),
        lambda x: x.index_select(0, PLACES),
        lambda x: x.index_add_(0, PLACES, numbers("cpu")[:3]),
        lambda x: x.masked_fill_(CELLS, 1),
        lambda x: x.index_put_((PLACES,), numbers("cpu")[:3]),
        lambda x: numbers("cpu")[PLACES.to(x.device)],
        lambda x: torch.nonzero(x, out=torch.tensor(0)),
    ],
    ids=["gather", "index_select", "index_add", "masked_fill", "values", "cpu_self", "out"],
)
def test_other_operands_of_the_cpu_are_refused(device, call):
    with pytest.raises(RuntimeError, match="device"):
        call(numbers(device))


def train(model, loss_of_step, steps=20):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of_step(step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def rollout_losses(device):
    """REINFORCE with a replay of transitions whose actions, ends of episodes and minibatches are tensors of the CPU."""
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3)).to(device)
    generator = torch.Generator().manual_seed(1)

    def loss_of_step(_):
        states = torch.randn(16, 4, generator=generator)
        actions = torch.randint(0, 3, (16,), generator=generator)
        done = torch.rand(16, generator=generator) < 0.3
        rewards = (states.sum(1) * (actions - 1)).to(device)
        returns = rewards.clone()
        for t in reversed(range(15)):
            returns[t] += 0.9 * returns[t + 1] * (~done[t]).to(device)
        returns[done] = rewards[done] - 1
        chosen = policy(states.to(device)).log_softmax(-1)[torch.arange(16), actions]
        batch = torch.randperm(16, generator=generator)[:8]
        return -(chosen[batch] * returns[batch]).mean()

    return train(policy, loss_of_step)


def best_match(cost):
    """The rows of `cost` that together cost least, one for each column."""
    columns = range(cost.size(1))
    return min(
        itertools.permutations(range(cost.size(0)), cost.size(1)),
        key=lambda rows: sum(cost[r, c] for r, c in zip(rows, columns)),
    )


def matching_losses(device):
    """A DETR-style loss: the CPU matches predictions to targets, its indices read and write on the device."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 5 * (4 + 4))).to(device)
    images = torch.randn(2, 8).to(device)
    labels = [torch.tensor([0, 2]), torch.tensor([1, 0, 2])]
    boxes = [torch.rand(len(of_image), 4) for of_image in labels]
    labels, boxes = [t.to(device) for t in labels], [t.to(device) for t in boxes]

    def match(logits, predicted):
        found = []
        for image in range(2):
            cost = torch.cdist(predicted[image], boxes[image], p=1) - logits[image].softmax(-1)[:, labels[image]]
            rows = torch.tensor(best_match(cost.detach().cpu()))
            order = rows.argsort()
            found.append((rows[order], order))
        return found

    def loss_of_step(_):
        out = model(images).reshape(2, 5, 8)
        logits, predicted = out[..., :4], out[..., 4:].sigmoid()
        found = match(logits, predicted)
        index = (
            torch.cat([torch.full_like(rows, i) for i, (rows, _) in enumerate(found)]),
            torch.cat([rows for rows, _ in found]),
        )
        classes = torch.full((2, 5), 3, device=device)
        classes[index] = torch.cat([labels[i][order] for i, (_, order) in enumerate(found)])
        wanted = torch.cat([boxes[i][order] for i, (_, order) in enumerate(found)])
        by_class = nn.functional.cross_entropy(logits.transpose(1, 2), classes)
        return by_class + nn.functional.l1_loss(predicted[index], wanted)

    return train(model, loss_of_step)


@pytest.mark.parametrize("losses", [rollout_losses, matching_losses])
def test_training_by_indices_of_the_cpu(device, losses):
    expected, actual = losses("cpu"), losses(device)
    assert expected[-1] < expected[0] or losses is rollout_losses
    torch.testing.assert_close(torch.tensor(actual), torch.tensor(expected), rtol=1e-3, atol=1e-3)


WRITES = {
    "number": lambda x: (x > 4, 7.0),
    "infinity": lambda x: (x > 4, float("-inf")),
    "rows": lambda x: (x[:, 0] > 4, 7),
    "columns": lambda x: ((slice(None), x[0] > 1), 7),
    "element": lambda x: (x > 4, x[1, 1]),
    "element_of_one_dim": lambda x: (x > 4, x[1, 1:2]),
    "tensor_of_the_cpu": lambda x: (x > 4, torch.tensor(3.0)),
    "none_is_true": lambda x: (x > 100, 7),
    "of_a_row": lambda x: ((1, x[1] > 4), 7),
}


@pytest.mark.parametrize(
    "lay_out", [lambda x: x, lambda x: x.t(), lambda x: x[1:, ::2]], ids=["whole", "transposed", "part"]
)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_numbers_written_by_masks_are_fused(device, write, lay_out):
    def run(d):
        base = numbers(d).clone() * 4
        x = lay_out(base)
        index, value = write(x)
        x[index] = value
        assert d == "cpu" or "index_put" not in _XLAC._pending_graph_text()
        return base, x.index_put((x > 2,), x[0, 0])

    for expected, actual in zip(run("cpu"), run(device), strict=True):
        assert torch.equal(actual.cpu(), expected) and actual.stride() == expected.stride()


def test_a_mask_of_two_dims_is_written_without_a_temporary_of_its_square(device):
    mask = (torch.arange(300.0 * 300).sin() > 0).reshape(300, 300).to(device)
    x, values = torch.zeros(300, 300).to(device), torch.ones(int(mask.sum())).to(device)
    torch_xla.sync(wait=True)
    torch.xla.reset_peak_memory_stats()
    before = torch.xla.memory_allocated()
    x[mask] = values
    assert x.sum().item() == values.numel()
    assert torch.xla.max_memory_allocated() - before < 16 * x.nbytes


# ---- Gradients of slices ----
# Their sums are written part by part (src/passes/add_into_parts.cpp).
def scan(x):
    state, states = torch.zeros_like(x[:, 0]), []
    for step in range(x.shape[1]):
        state = x[:, step] * state + x[:, step].sin()
        states.append(state)
    return torch.stack(states, 1)


def halves_turned(x):
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], -1) + x


SLICINGS = {
    "scan": scan,
    "from_the_front": lambda x: sum((step + 1) * x[:, step].square() for step in range(x.shape[1])),
    "windows": lambda x: torch.stack([x[:, i : i + 3].square() for i in range(3)]),
    "halves": halves_turned,
    "even_and_odd": lambda x: torch.stack([x[..., ::2] * x[..., 1::2], x[..., 1::2].exp()]),
    "transposed": lambda x: x.transpose(0, 1)[2] * x.transpose(0, 1)[4] + x[:, 1],
    "expanded": lambda x: x[:, :1].expand(-1, 3, -1) * x[:, 1:4],
    "diagonal": lambda x: x.diagonal(dim1=0, dim2=1) * x[:, 0].t()[:, :3].sum(1, keepdim=True),
    "twice": lambda x: x[1] * x[1].cos() * x[0],
    "channels_last": lambda x: x[None].contiguous(memory_format=torch.channels_last)[:, 1] * x[None].sin()[:, 2],
    "one_element": lambda x: x[0, 0, 0] * x[1, 2, 3] + x[2].sum(),
    "as_strided": lambda x: x.as_strided((4, 3), (2, 1)) * x.as_strided((4, 3), (1, 2), 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.parametrize("function", SLICINGS.values(), ids=SLICINGS)
def test_gradients_of_slices(device, function, dtype):
    start = (torch.arange(120.0).reshape(3, 5, 8).sin() * 1.5).to(dtype)

    def gradients(device):
        x = start.to(device).requires_grad_()
        (first,) = torch.autograd.grad(function(x).abs().square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.abs().square().sum(), x)
        return first.detach(), second

    tolerance = {"rtol": 0.05, "atol": 0.5} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-3}
    for expected, actual in zip(gradients("cpu"), gradients(device), strict=True):
        torch.testing.assert_close(actual.cpu(), expected, **tolerance)


# ---- Rows that one index names ----
def expanded(x, i, v, dim):
    """The index beside the other dims of what it names, and that."""
    v = v.flatten(dim, dim + i.dim() - 1)
    return i.flatten().long().reshape([-1 if d == dim else 1 for d in range(x.dim())]).expand_as(v), v


ROW_CALLS = {
    "index": lambda x, i, v, dim: x[(slice(None),) * dim + (i - x.shape[dim] * (i % 2),)],  # half of them from the end
    "index_select": lambda x, i, v, dim: x.index_select(dim, i.flatten()),
    "put": lambda x, i, v, dim: torch.ops.aten.index_put(x, [None] * dim + [i - x.shape[dim] * (i % 2)], v),
    "accumulate": lambda x, i, v, dim: torch.ops.aten.index_put(x, [None] * dim + [i], v, accumulate=True),
    "index_add": lambda x, i, v, dim: x.index_add(dim, i.flatten(), v.flatten(dim, dim + i.dim() - 1)),
    "scaled": lambda x, i, v, dim: x.index_add(dim, i.flatten(), v.flatten(dim, dim + i.dim() - 1), alpha=3),
    "scatter_add": lambda x, i, v, dim: x.scatter_add(dim, *expanded(x, i, v, dim)),
    "index_copy": lambda x, i, v, dim: x.index_copy(dim, i.flatten().long(), v.flatten(dim, dim + i.dim() - 1)),
}
ADDING = {"accumulate", "index_add", "scaled", "scatter_add"}
SELVES = {
    "columns": ((300, 64), 0),
    "few_columns": ((300, 7), 0),
    "numbers": ((300,), 0),
    "inner": ((3, 300, 40), 1),
    "last": ((5, 300), 1),
}
ROW_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64, torch.bool]
ROW_CASES = [(name, dtype) for name in ROW_CALLS for dtype in ROW_DTYPES if dtype != torch.bool or name not in ADDING]


@pytest.mark.parametrize("name,dtype", ROW_CASES, ids=str)
@pytest.mark.parametrize("shape,dim", SELVES.values(), ids=SELVES)
def test_rows(device, shape, dim, name, dtype):
    """Each row twice and more, as threads share so many."""
    call = ROW_CALLS[name]
    i = (torch.arange(4000) * 7919 % 300).reshape(2, 2000)
    if name in ("put", "index_copy"):
        i = i.flatten()[:300].reshape(2, 150)  # ATen's threads write a row that is named twice in any order
    written = (*shape[:dim], *i.shape, *shape[dim + 1 :])
    start = (torch.arange(torch.Size(shape).numel()).reshape(shape).sin() * 9).to(dtype)
    values = (torch.arange(torch.Size(written).numel()).reshape(written).cos() * 9).to(dtype)
    for index in (i, i.int()) if name in ("index", "index_select") else (i,):
        expected = call(start, index, values, dim)
        actual = call(start.to(device), index.to(device), values.to(device), dim)
        assert actual.stride() == expected.stride()
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1.0 if dtype == torch.bfloat16 else 1e-3)


@pytest.mark.checks_values
@pytest.mark.parametrize("call", ROW_CALLS.values(), ids=ROW_CALLS)
def test_rows_out_of_range(device, call):
    def run(d, start):
        x = torch.ones(5, 64).to(d)
        i, v = torch.tensor([[0, 4, start]]).to(d), torch.zeros(1, 3, 64).to(d)
        return call(x, i, v, 0).sum().item()

    for start in (2, 5, -6):
        check(lambda d, start=start: run(d, start), "rows")


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("by_frequency", [False, True])
@pytest.mark.parametrize("columns", [1, 7, 64])
def test_gradients_of_embeddings(device, columns, by_frequency, padding):
    def gradient(d):
        weight = (torch.arange(300.0 * columns).reshape(300, columns).sin()).to(d).requires_grad_()
        i = (torch.arange(4000) * 7919 % 300).reshape(40, 100).to(d)
        y = nn.functional.embedding(i, weight, padding_idx=padding, scale_grad_by_freq=by_frequency)
        (y * torch.arange(float(y.numel())).reshape(y.shape).cos().to(d)).sum().backward()
        return weight.grad.cpu()

    torch.testing.assert_close(gradient(device), gradient("cpu"), rtol=1e-5, atol=1e-4)
