"""Teams of threads: what has no work of its own keeps none, so that the barriers of the others need no sleep."""

import os

import pytest

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a team has two threads or more")
ENGINE = {"PJRT_DEVICE": "CPU"}  # the embedded one, also where a plugin is under test

PROGRAM = """
import collections
import time
from pathlib import Path

import torch
import torch_xla

def count_threads():
    # A thread of a team has the name of the one that opened it.
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return collections.Counter(names)

def wait_until(holds):
    ends = time.monotonic() + 30
    while not holds() and time.monotonic() < ends:
        time.sleep(0.01)
    assert holds(), count_threads()

torch.set_num_threads(2)
own = Path("/proc/self/comm").read_text().strip()
torch.ones(8).sum().item()
x = torch.randn(1000, 1000)
on_device = x.to("xla")
"""


def test_a_device_that_runs_nothing_ends_its_team(run_python):
    program = """
(on_device @ on_device).relu().sum().item()
assert count_threads()["xla_executor_0"] == 2, count_threads()
wait_until(lambda: count_threads()["xla_executor_0"] == 1)
assert (on_device @ on_device).relu().sum().item() > 0
assert count_threads()["xla_executor_0"] == 2, count_threads()
"""
    run_python(PROGRAM + program, **ENGINE)


# So many numbers, or so many operations, that the run is not the caller's.
RUNS = {
    "compiled": "on_device.relu() * 2",
    "interpreted": "functools.reduce(torch.mul, [on_device[0, :4]] * 100)",
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_ends_the_team_of_its_caller(run_python, kind):
    program = f"""
import functools

y = {RUNS[kind]}
torch_xla.sync(wait=True)
before = count_threads()[own]
torch.add(x, x)
assert count_threads()[own] == before + 1, count_threads()
y = {RUNS[kind]}
torch_xla.sync(wait=True)
assert count_threads()[own] == before, count_threads()
"""
    limit = "1000000" if kind == "interpreted" else "0"
    run_python(PROGRAM + program, **ENGINE, XLA_INTERPRETED_OPERATIONS=limit)


TRAINING = """
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.norm = nn.Embedding(200, 256), nn.LayerNorm(256)
        self.heads, self.wide, self.narrow = nn.Linear(256, 768), nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        x = self.tokens(x)
        for _ in range(4):
            q, k, v = (part.view(4, 64, 2, 128).transpose(1, 2) for part in self.heads(self.norm(x)).split(256, -1))
            attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + attended.transpose(1, 2).reshape(4, 64, 256)
            x = x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))
        return torch.cat([x, x.flip(1)], -1)[..., :200]

def train(waits):
    torch.manual_seed(0)
    model = Block().to("xla")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs, labels = torch.randint(200, (4, 64)).to("xla"), torch.randint(200, (4, 64)).to("xla")
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs).flatten(0, 1), labels.flatten()).backward()
        optimizer.step()
        torch_xla.sync(wait=waits)
    return [parameter.detach().cpu() for parameter in model.parameters()]

expected = train(waits=True)
for _ in range(3):
    assert all(torch.equal(a, b) for a, b in zip(train(waits=False), expected, strict=True))
"""


def test_values_do_not_depend_on_what_is_recorded_meanwhile(run_python):
    run_python(PROGRAM + TRAINING, **ENGINE)


VALUES = """
import hashlib
import torch

torch.manual_seed(0)
first, last = torch.nn.Linear(300, 500), torch.nn.Linear(500, 300)
layers = torch.nn.Sequential(first, torch.nn.LayerNorm(500), torch.nn.GELU(), last).to("xla")
x = torch.randn(200, 300).to("xla")
layers(x).softmax(-1).square().sum().backward()
values = [parameter.grad.cpu() for parameter in layers.parameters()]
print(hashlib.md5(b"".join(value.numpy().tobytes() for value in values)).hexdigest())
"""


def test_a_run_has_no_more_threads_than_processors(run_python):
    """Whatever number is asked for, to the same values."""
    processors = len(os.sched_getaffinity(0))

    def run(threads: int) -> str:
        check = f"""
assert torch.get_num_threads() == {threads}
assert count_threads()["xla_executor_0"] <= {processors}, count_threads()
"""
        return run_python(PROGRAM + f"torch.set_num_threads({threads})\n" + VALUES + check, **ENGINE)

    assert run(processors) == run(processors + 2) == run(8 * processors)


def test_a_run_keeps_to_the_processors_of_its_process(run_python):
    confined = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    alone = 'assert count_threads()["xla_executor_0"] == 1, count_threads()'
    run_python(confined + PROGRAM + VALUES + alone, **ENGINE)
