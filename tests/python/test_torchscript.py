"""TorchScript on the device: tasks of torch.jit.fork, traced programs, modules in files, threads.

The programs are those of PyTorch's tutorial on dynamic parallelism: negations in tasks, and an ensemble of
bidirectional LSTMs in its three forms.
"""

import io
import json
import threading
import time

import pytest
import torch
from torch import nn

import torch_xla

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


# ---- The ensemble ----
class Bidirectional(nn.Module):
    """Two LSTMs on one sequence, the second one from its end."""

    def __init__(self):
        super().__init__()
        self.cell_f = nn.LSTM(input_size=C, hidden_size=C)
        self.cell_b = nn.LSTM(input_size=C, hidden_size=C)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output_f, _ = self.cell_f(x)
        output_b, _ = self.cell_b(torch.flip(x, dims=[0]))
        return torch.cat((output_f, torch.flip(output_b, dims=[0])), dim=2)


class ParallelBidirectional(Bidirectional):
    """The first LSTM is a task."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        future_f = torch.jit.fork(self.cell_f, x)
        output_b, _ = self.cell_b(torch.flip(x, dims=[0]))
        output_b_rev = torch.flip(output_b, dims=[0])
        output_f, _ = torch.jit.wait(future_f)
        return torch.cat((output_f, output_b_rev), dim=2)


class Ensemble(nn.Module):
    """The sum of some such modules."""

    def __init__(self, part: type, count: int = 3):
        super().__init__()
        self.models = nn.ModuleList([part() for _ in range(count)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results = []
        for model in self.models:
            results.append(model(x))
        return torch.stack(results).sum(dim=0)


class ParallelEnsemble(Ensemble):
    """Each module is a task, which has tasks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        futures = [torch.jit.fork(model, x) for model in self.models]
        results = [torch.jit.wait(future) for future in futures]
        return torch.stack(results).sum(dim=0)


FORMS = [(Ensemble, Bidirectional), (Ensemble, ParallelBidirectional), (ParallelEnsemble, ParallelBidirectional)]


def make(form: tuple[type, type]) -> nn.Module:
    torch.manual_seed(0)
    return form[0](form[1])


@pytest.mark.parametrize("form", FORMS, ids=["plain", "parallel layers", "parallel models"])
def test_ensembles(device, form, tmp_path):
    """Values and gradients are eager's; a profile shows the device's work."""
    ours, eager = torch.jit.script(make(form).to(device)), make(FORMS[0])
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
    profile.export_chrome_trace(str(tmp_path / "parallel.json"))
    events = json.loads((tmp_path / "parallel.json").read_text())["traceEvents"]
    assert sum("lstm" in event.get("name", "") for event in events) >= 6


# ---- Files and threads ----
def through_file(module, where: str) -> torch.jit.ScriptModule:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file, map_location=where)


def test_modules_in_files(device):
    """Saved on one device, loaded on the same or the other one."""
    x = torch.rand(T, B, C)
    eager = make(FORMS[0])
    for saved_on in ("cpu", "xla"):
        script = torch.jit.script(make(FORMS[2]).to(saved_on))
        for loaded_on in ("cpu", "xla"):
            loaded = through_file(script, loaded_on)
            assert {p.device.type for p in loaded.parameters()} == {loaded_on}
            torch.testing.assert_close(loaded(x.to(loaded_on)).cpu(), eager(x))


def test_threads_run_one_script(device):
    """Eight threads record, sync and read at the same time, for a while."""
    script = torch.jit.script(make(FORMS[2]).to(device))
    xs = [torch.rand(T, B, C, generator=torch.Generator().manual_seed(number)) for number in range(8)]
    with torch.no_grad():
        expected = [make(FORMS[0])(x) for x in xs]
    errors, turns, end = [], [0] * 8, time.monotonic() + 2

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
