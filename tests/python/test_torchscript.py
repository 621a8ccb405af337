"""TorchScript on the device: tasks of torch.jit.fork, traced programs, modules in files, threads.

The programs are those of PyTorch's tutorial on dynamic parallelism: negations in tasks, and the ensemble of
examples/lstm_ensemble.py.
"""

import copy
import io
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import torch_xla

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import lstm_ensemble
from lstm_ensemble import FORMS, make

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated:DeprecationWarning")

T, B, C = 7, 3, 16  # steps, batch, channels


# ---- Functions ----
def foo(x):
    return torch.neg(x)


@torch.jit.script
def example(x):
    future = torch.jit.fork(foo, x)
    x_normal = foo(x)
    x_parallel = torch.jit.wait(future)
    return x_normal, x_parallel


@torch.jit.script
def example_of_many(x):
    futures: list[torch.jit.Future[torch.Tensor]] = []
    for _ in range(100):
        futures.append(torch.jit.fork(foo, x))
    results = []
    for future in futures:
        results.append(torch.jit.wait(future))
    return torch.sum(torch.stack(results))


def example_to_trace(x):
    futures = [torch.jit.fork(foo, x * number) for number in range(5)]
    return torch.stack([torch.jit.wait(future) for future in futures]).sum(0)


def test_a_task_and_a_call(device):
    normal, parallel = example(torch.ones(1, device=device))
    assert normal.device.type == parallel.device.type == "xla"
    assert normal.tolist() == parallel.tolist() == [-1.0]


def test_a_hundred_tasks(device):
    for _ in range(3):  # the executor specializes what it has run
        assert example_of_many(torch.ones([], device=device)).item() == -100.0


def test_tasks_in_a_trace(device):
    """What is recorded from a run on the device runs there, and on the CPU, with other numbers."""
    traced = torch.jit.trace(example_to_trace, (torch.ones(3, device=device),))
    assert "fork" in str(traced.graph)
    for x in (torch.arange(3.0), torch.randn(3)):
        torch.testing.assert_close(traced(x.to(device)).cpu(), -10 * x)
    script = torch.jit.trace(example, (torch.ones(2, device=device),))
    assert [t.tolist() for t in script(torch.full((2,), 3.0, device=device))] == [[-3.0, -3.0]] * 2


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(2, 3, 3), nn.ConvTranspose2d(2, 3, 2), nn.Conv2d(2, 4, 3, padding="same", groups=2)]
)
def test_traced_convolutions(device, layer):
    """The tracer records them on the device; a trace of either device runs on both, with gradients."""
    eager = nn.Sequential(layer, nn.BatchNorm2d(layer.out_channels), nn.ReLU()).eval()
    x = torch.randn(2, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    expected = eager(x)
    gradient = torch.autograd.grad(expected.square().sum(), layer.weight)[0]
    for traced_on in ("cpu", device):
        traced = torch.jit.trace(copy.deepcopy(eager).to(traced_on), (x.to(traced_on),))
        assert "aten::_convolution" in str(traced.inlined_graph)
        for where in ("cpu", "xla"):
            loaded = through_file(traced, where)
            result = loaded(x.to(where))
            torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)
            actual = torch.autograd.grad(result.square().sum(), next(loaded.parameters()))[0]
            torch.testing.assert_close(actual.cpu(), gradient, rtol=1e-4, atol=1e-4)


INDEXED = {
    "mask": lambda x: x[x > 0],
    "mask behind a slice": lambda x: x[:, torch.tensor([True, False, True])],
    "mask that is written": lambda x: torch.index_put(x, (x > 0,), torch.zeros(())),
    "numbers behind a slice": lambda x: x[:, torch.tensor([0, 2])],
    "complex numbers": lambda x: torch.complex(x, x)[:, torch.tensor([0, 2])],
    "complex numbers by a mask": lambda x: torch.complex(x, x)[x > 0],
}


@pytest.mark.parametrize("operation", INDEXED)
def test_traced_indexing(device, operation):
    """The interpreter's lists of indices, run on the CPU or not."""
    x = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, 6.0]])
    expected = INDEXED[operation](x)
    with torch.device(device):
        traced = torch.jit.trace(INDEXED[operation], (-x.to(device),), check_trace=False)
    torch.testing.assert_close(traced(x.to(device)).cpu(), expected)


# ---- The ensemble ----
@pytest.mark.parametrize("form", FORMS)
def test_ensembles(device, form, tmp_path):
    """Values and gradients are eager's; a profile shows the device's work."""
    ours, eager = torch.jit.script(make(form, C).to(device)), make("plain loop", C)
    for number in range(3):
        x = torch.rand(T, B, C, generator=torch.Generator().manual_seed(number))
        mine, theirs = x.to(device).requires_grad_(), x.clone().requires_grad_()
        ours.zero_grad(), eager.zero_grad()
        result, expected = ours(mine), eager(theirs)
        torch.testing.assert_close(result.cpu(), expected)
        result.square().mean().backward(), expected.square().mean().backward()
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad)
        for p, q in zip(ours.parameters(), eager.parameters()):
            torch.testing.assert_close(p.grad.cpu(), q.grad)
    with torch.autograd.profiler.profile() as profile, torch.no_grad():
        ours(x.to(device)).cpu()
        time.sleep(0.1)  # threads of fork end their records after the results; the profiler does not wait for them
    profile.export_chrome_trace(str(tmp_path / "parallel.json"))
    events = json.loads((tmp_path / "parallel.json").read_text())["traceEvents"]
    assert sum("lstm" in event.get("name", "") for event in events) >= 6


@pytest.mark.slow
def test_the_example(tmp_path):
    """All forms on both devices, with equal values, else it fails; a table, and a trace of each."""
    options = ["--sizes", str(T), str(B), str(C), "--rounds", "1", "--out", str(tmp_path)]
    command = [sys.executable, lstm_ensemble.__file__, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The plain loop takes" in done.stdout
    for device in ("cpu", "xla"):
        assert sum(line.startswith(f"│ {device}") for line in done.stdout.splitlines()) == len(FORMS)
        for form in FORMS:
            file = tmp_path / f"{device}_{form.replace(' ', '_')}.json"
            assert "lstm" in file.read_text()


# ---- Files and threads ----
def through_file(module, where: str) -> torch.jit.ScriptModule:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file, map_location=where)


def test_modules_in_files(device):
    """Saved on one device, loaded on the same or the other one."""
    x = torch.rand(T, B, C)
    eager = make("plain loop", C)
    for saved_on in ("cpu", "xla"):
        script = torch.jit.script(make("forked models and layers", C).to(saved_on))
        for loaded_on in ("cpu", "xla"):
            loaded = through_file(script, loaded_on)
            assert {p.device.type for p in loaded.parameters()} == {loaded_on}
            torch.testing.assert_close(loaded(x.to(loaded_on)).cpu(), eager(x))


def test_threads_run_one_script(device, thread_seconds):
    """Eight threads record, sync and read at the same time, for a while."""
    script = torch.jit.script(make("forked models and layers", C).to(device))
    xs = [torch.rand(T, B, C, generator=torch.Generator().manual_seed(number)) for number in range(8)]
    with torch.no_grad():
        expected = [make("plain loop", C)(x) for x in xs]
    errors, turns, end = [], [0] * 8, time.monotonic() + thread_seconds

    def run(number: int) -> None:
        try:
            while time.monotonic() < end or not turns[number]:
                with torch.no_grad():
                    result = script(xs[number].to(device))
                if turns[number] % 3 == 0:
                    torch_xla.sync()
                torch.testing.assert_close(result.cpu(), expected[number])
                turns[number] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    assert all(turns)
