"""A plain PyTorch loop needs no line of torch_xla: it syncs at each optimizer step and compiles few programs."""

import gc
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_xla
from torch_xla import _XLAC
from torch_xla.debug import metrics as met

STEPS = 100
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    "adam_loop": lambda parameters: torch.optim.Adam(parameters, lr=1e-3, foreach=False),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


class Loop:
    """A model, an optimizer and one batch on `device`."""

    def __init__(self, device, optimizer: str = "sgd", dropout: float = 0.0):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 4)).to(device)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.data = torch.randn(32, 8).to(device)
        self.target = torch.randint(4, (32,)).to(device)

    def step(self) -> torch.Tensor:
        """One step as everyone writes it. Returns the loss."""
        self.optimizer.zero_grad()
        self.output = self.model(self.data)
        loss = F.cross_entropy(self.output, self.target)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_plain_loop_compiles_at_most_three_programs(device, compiles, optimizer, dropout):
    loop = Loop(device, optimizer, dropout)
    for _ in range(STEPS):
        loss = loop.step()
    torch_xla.sync(wait=True)
    assert compiles.value <= 3
    assert loss.isfinite().item()


def test_new_batches_of_one_shape_compile_nothing(device, compiles):
    loop = Loop(device)
    for _ in range(STEPS):
        loop.data = torch.randn(32, 8).to(device)
        loop.step()
    torch_xla.sync(wait=True)
    assert compiles.value <= 3


def test_kept_values_and_garbage_collection_add_at_most_one(device, compiles):
    loop = Loop(device)
    losses, outputs = [], []
    for step in range(STEPS):
        losses.append(loop.step())
        if step % 10 == 0:
            outputs.append(loop.output)
        if step % 17 == 0:
            gc.collect()
    torch_xla.sync(wait=True)
    assert compiles.value <= 4
    values = [loss.item() for loss in losses]
    assert values[-1] < values[0]
    assert len({output.sum().item() for output in outputs}) == len(outputs)


def test_learning_rate_and_step_counts_compile_nothing(device, compiles):
    loop = Loop(device, "adam", dropout=0.5)
    for _ in range(4):
        loop.step()
    torch_xla.sync(wait=True)
    compiles.reset()
    for step in range(20):
        loop.optimizer.param_groups[0]["lr"] = 1e-3 / (step + 1)
        loop.step()
    torch_xla.sync(wait=True)
    assert compiles.value == 0


def test_inference_without_any_sync(device, compiles):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device).eval()
    data = torch.randn(32, 8).to(device)
    with torch.no_grad():
        for _ in range(500):
            output = model(data)
    torch.testing.assert_close(output.cpu(), model.cpu()(data.cpu()))
    assert compiles.value <= 3


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_values_are_eagers(device, optimizer):
    mine, eager = Loop(device, optimizer), Loop("cpu", optimizer)
    got = [mine.step() for _ in range(10)]
    expected = [eager.step() for _ in range(10)]
    torch.testing.assert_close(torch.stack(got).cpu(), torch.stack(expected), rtol=1e-3, atol=1e-5)
    for a, b in zip(mine.model.parameters(), eager.model.parameters()):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-3, atol=1e-5)


def test_hook_runs_what_is_pending(device):
    loop = Loop(device)
    loop.step()
    executed = met.counter_value("ExecuteComputation") or 0
    loop.step()
    torch_xla.core.xla_model.wait_device_ops()
    assert (met.counter_value("ExecuteComputation") or 0) == executed + 1


def test_hook_can_be_switched_off(device):
    loop = Loop(device)
    loop.step()
    torch_xla.sync(wait=True)
    torch_xla.set_auto_sync(False)
    try:
        assert not torch_xla.auto_sync()
        executed = met.counter_value("ExecuteComputation") or 0
        loop.step()
        torch_xla.core.xla_model.wait_device_ops()
        assert (met.counter_value("ExecuteComputation") or 0) == executed
    finally:
        torch_xla.set_auto_sync(True)
        torch_xla.sync(wait=True)


def test_a_thread_switches_it_off_for_itself(device):
    loop, pending = Loop(device), []

    def work():
        torch_xla.set_auto_sync(False)
        loop.step()
        pending.append(_XLAC._live_nodes() > 0)
        torch_xla.sync()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert pending == [True] and torch_xla.auto_sync()


def test_autograds_threads_are_held_as_the_thread_that_they_work_for(run_python):
    """An optimizer in a hook steps within the backward pass, and torch_xla.step() syncs behind it."""
    out = run_python("""
        import threading, torch, torch_xla
        w = torch.ones(3, device="xla", requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)

        def step(_):
            optimizer.step()
            print(threading.current_thread() is threading.main_thread(), torch_xla._XLAC._pending_operation(w) != "")

        (w * 0).sum().backward()  # the first one runs on the calling thread
        w.grad = None
        w.register_post_accumulate_grad_hook(step)
        with torch.autograd.set_multithreading_enabled(True), torch_xla.step():
            (w * 2).sum().backward()
        print([round(x, 4) for x in w.tolist()])
    """)
    assert out.splitlines() == ["False True", "[0.8, 0.8, 0.8]"]


def test_optimizers_of_several_threads_are_told_apart(device):
    kept, errors = [], []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work():
        torch_xla.set_auto_sync(False)
        try:
            for _ in range(1000):
                p = nn.Parameter(torch.zeros(1, device=device))
                p.grad = torch.zeros(1, device=device)
                kept.append(p)
                torch.optim.SGD([p], lr=0.1).step()
        except RuntimeError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors


def test_explicit_barrier_after_the_hook_runs_nothing_more(device):
    loop = Loop(device)
    for _ in range(3):
        loop.step()
        torch_xla.sync()
    torch_xla.sync(wait=True)
    executed = met.counter_value("ExecuteComputation")
    loop.step()
    torch_xla.sync(wait=True)
    torch_xla.sync(wait=True)
    assert met.counter_value("ExecuteComputation") == executed + 1


def test_environment_variable_switches_it_off(run_python):
    out = run_python("import torch_xla; print(torch_xla.auto_sync())", XLA_AUTO_SYNC="0")
    assert out.strip() == "False"
