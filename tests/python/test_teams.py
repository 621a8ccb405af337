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
