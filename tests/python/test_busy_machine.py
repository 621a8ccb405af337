"""Runs beside other processes that want the processors: the threads of a run sleep while they wait, and values stay."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import time
import torch
import torch_xla
import torch_xla.debug.metrics as met

torch.set_num_threads({threads})
x = torch.randn(512, 512, generator=torch.Generator().manual_seed(0), device="cpu").to("xla")

def times_looked():
    return met.counter_value("BusyProcessors") or 0

def compute():
    y = (x @ x).relu().softmax(-1) @ x
    short = (x[:100] @ x[:, :256]).tanh()
    heads = y[:64].view(1, 64, 8, 64).transpose(1, 2)
    attention = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
    return torch.cat([y.flatten(), short.flatten(), attention.flatten(), x.sum(0), (x * x).sum().view(1)]).cpu()

time.sleep(0.1)  # since the import
expected = compute()
first = times_looked()
ends = time.monotonic() + 60
while times_looked() == 0 and time.monotonic() < ends:
    assert torch.equal(compute(), expected)
for _ in range(3):
    assert torch.equal(compute(), expected)
print("busy", first, times_looked())
"""


@pytest.fixture
def busy_processes():
    """As many processes that compute without end as there are processors, and one more."""
    loop = "while True: pass"
    processes = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(len(os.sched_getaffinity(0)) + 1)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a team has two threads or more")
def test_a_run_notices_busy_processes(device, run_python, busy_processes):
    assert "busy 1 1" in run_python(PROGRAM.format(threads=len(os.sched_getaffinity(0))))


def test_a_team_of_one_thread_waits_for_nobody(device, run_python, busy_processes):
    program = PROGRAM.replace("time.monotonic() + 60", "time.monotonic() + 1")
    assert "busy 0 0" in run_python(program.format(threads=1))
