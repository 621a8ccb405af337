"""New shapes on the embedded engine: code is made once for all sizes, programs are planned anew, values are eager's."""

import re
from pathlib import Path

import pytest

# Steps of training whose inputs are new in number and length, compared with eager's; and counters.
STEPS = """
import torch, torch_xla
import torch.nn.functional as F
import torch_xla.debug.metrics as met
torch.manual_seed(0)
def make():
    torch.manual_seed(1)
    layers = [torch.nn.Linear(12, 24), torch.nn.LayerNorm(24), torch.nn.GELU(), torch.nn.Linear(24, 9)]
    return torch.nn.Sequential(*layers)
def step(model, device, rows, length):
    x = torch.randn(rows, length, 12, generator=torch.Generator().manual_seed(length)).to(device)
    y = model(x).softmax(1).mean((0, 1))
    loss = F.cross_entropy(y[None], torch.tensor([3]).to(device)) + x[:, length // 2 :].abs().amax()
    model.zero_grad()
    loss.backward()
    return [loss.detach().cpu(), *(p.grad.cpu() for p in model.parameters())]
ours, eager = make().to("xla"), make()
def check(rows, length):
    for a, b in zip(step(ours, "xla", rows, length), step(eager, "cpu", rows, length)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
def counts():
    return [met.counter_value(name) or 0 for name in ("UncachedCompile", "ReplannedProgram", "CachedCompile")]
"""
ENGINE = {"PJRT_DEVICE": "CPU"}  # the embedded one, also where a plugin is under test


def run_counted(run_python, source: str, **env) -> list[int]:
    """The numbers in the last line of a program's output."""
    return [int(number) for number in run_python(STEPS + source, **ENGINE, **env).splitlines()[-1].split()]


def test_a_new_shape_needs_no_new_code(run_python):
    source = """
for number, length in enumerate([*range(20, 90), *range(600, 610), 2, 300, 7]):
    check(2 + number % 5, length)
before = counts()
for length in range(75, 85):
    check(7, length)
again = counts()
for length in range(75, 85):
    check(7, length)
print(*before, *(b - a for a, b in zip(before, again)), *(b - a for a, b in zip(again, counts())))
"""
    compiled, replanned, _, *numbers = run_counted(run_python, source, XLA_PERSISTENT_CACHE_PATH="")
    new, planned_again, _, *seen = numbers
    assert compiled <= 24 and replanned >= 40  # two programs a step and device; kinds of lengths: short, middle, long
    assert new == 0 and planned_again >= 10
    assert seen[:2] == [0, 0] and seen[2] >= 10


def test_a_batch_of_another_size_needs_no_code(run_python):
    source = """
def run(device, x):
    y = F.layer_norm(x.to(device) * 2 + 1, (24,)).softmax(-1)
    return y, y.square().sum(1), F.gelu(y).sum(0)
for rows in (4, 9, 60):
    x = torch.randn(rows, 3, 24)
    for a, b in zip(run("xla", x), run("cpu", x)):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)
    if rows == 4:
        before = counts()
print(before[0], *(b - a for a, b in zip(before, counts())))
"""
    first, new, replanned, _ = run_counted(run_python, source, XLA_PERSISTENT_CACHE_PATH="")
    assert first > 0 and new == 0 and replanned == 2 * first


@pytest.mark.parametrize("rows,length", [(1, 30), (1, 1), (3, 1), (0, 5)])
def test_dims_of_one_and_none(run_python, rows, length):
    source = f"""
check(2, 20), check(3, 21), check(4, 22)
try:
    check({rows}, {length})
except (IndexError, RuntimeError) as error:  # the largest of nothing
    assert {rows} == 0 and "amax" in str(error), error
check(5, 23)
print(*counts())
"""
    assert run_counted(run_python, source)[0] > 0


def test_a_second_start_makes_no_code(run_python, tmp_path):
    source = """
for length in (20, 31, 42, 53):
    check(3, length)
print(*counts())
"""
    directory = {"XLA_PERSISTENT_CACHE_PATH": str(tmp_path / "cache")}
    assert run_counted(run_python, source, **directory)[0] > 0
    compiled, replanned, _ = run_counted(run_python, source, **directory)
    assert compiled == 0 and replanned > 0


# A loop over parts of tensors by Python numbers on both devices; the counters of the turns behind the first `warm`.
PARTS = """
def compare(run, turns, warm):
    for turn in range(turns):
        if turn == warm:
            before = counts()
        for a, b in zip(run("xla", turn), run("cpu", turn)):
            torch.testing.assert_close(a.cpu(), b, rtol=1e-5, atol=1e-6)
    print(*(b - a for a, b in zip(before, counts())))
"""


def test_parts_by_python_numbers_are_of_one_program(run_python):
    """Reads, writes and slices by the number of the turn, of a state, a log and batches."""
    source = """
torch.manual_seed(2)
data, labels = torch.randn(96, 12), torch.randint(9, (96,))
kept = {}
def run(device, turn):
    if turn == 0:
        kept[device] = [torch.zeros(40, 3, 12).to(device), data.to(device), labels.to(device)]
    log, x, y = kept[device]
    log[turn] = x[turn * 3 : turn * 3 + 3] * turn
    log[turn + 1, 1] += log[turn].sum(0)
    log[turn, :, turn % 12] = 7.0
    model = ours if device == "xla" else eager
    with torch.no_grad():
        batch = slice(turn * 4, turn * 4 + 4)
        loss = F.cross_entropy(model(x[batch]), y[batch])
    return loss, log, log[turn].t()
compare(run, 20, 3)
"""
    compiled, replanned, hits = run_counted(run_python, PARTS + source, XLA_PERSISTENT_CACHE_PATH="")
    assert (compiled, replanned) == (0, 0) and hits >= 17


def test_parts_of_tensors_in_other_orders_of_memory(run_python):
    """Transposed, channels-last and expanded tensors, and parts that lie in each other's memory."""
    source = """
torch.manual_seed(2)
images = torch.randn(9, 5, 6, 4).contiguous(memory_format=torch.channels_last)
table = torch.randn(12, 9).t()
def run(device, turn):
    x, t = images.to(device), table.to(device)
    y = x[turn] * t[turn, turn] + t.select(1, turn)[:4]
    z = x.permute(0, 2, 3, 1)[turn].clone()
    z[turn % 3] = z[turn % 3 + 1]
    z[:2] = z[turn % 4 : turn % 4 + 2].clone()
    w = t[turn].expand(4, 12)[:, turn : turn + 3]
    return y, z, w, w.sum(0), x[turn : turn + 2].flatten(1) @ x[turn].flatten()
compare(run, 8, 4)
"""
    compiled, _, _ = run_counted(run_python, PARTS + source, XLA_PERSISTENT_CACHE_PATH="")
    assert compiled == 0


def test_powers_of_any_exponent_are_of_one_program(run_python):
    source = """
x = torch.rand(60, 40) + 0.1
def run(device, turn):
    y = x.to(device).requires_grad_()
    exponent = 0.33 + turn * 0.61
    values = [y**exponent, y ** (turn + 4), torch.float_power(y, exponent), exponent**y]
    values += [y.detach().clone().pow_(-exponent), torch.pow(y.detach(), exponent, out=torch.empty_like(y))]
    (gradient,) = torch.autograd.grad(sum(v.sum() for v in values[:2]), y)
    return [*values, gradient, torch.arange(9).to(device) ** exponent]
compare(run, 8, 2)
"""
    compiled, replanned, _ = run_counted(run_python, PARTS + source, XLA_PERSISTENT_CACHE_PATH="")
    assert (compiled, replanned) == (0, 0)


def test_unrolled_loops_of_new_lengths(run_python):
    """A scan over time and its gradient, which is written step by step, of a new length in each turn."""
    source = """
torch.manual_seed(0)
data = torch.randn(4, 200, 16)
def run(device, turn):
    x = data[:, : 20 + 13 * turn].to(device).requires_grad_()
    state, states = torch.zeros(4, 16).to(device), []
    for step in range(x.shape[1]):
        state = x[:, step] * state * 0.3 + x[:, step].sin()
        states.append(state)
    loss = torch.stack(states, 1).square().mean()
    return loss, *torch.autograd.grad(loss, x)
compare(run, 12, 1)
"""
    compiled, replanned, hits = run_counted(run_python, PARTS + source, XLA_PERSISTENT_CACHE_PATH="")
    assert (compiled + replanned, hits) == (11, 0)


def test_the_documents_program(run_python):
    text = (Path(__file__).parents[2] / "docs" / "changing_shapes.md").read_text()
    source, _ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)  # the other is run in test_bucketing.py
    (told,) = re.findall(r"This prints (\d+) and (\d+)", text)
    environment = {**ENGINE, "XLA_PERSISTENT_CACHE_PATH": "", "XLA_INTERPRETED_OPERATIONS": "5000"}
    assert run_python(source, **environment).split() == list(told)
