"""Eager mode: each operation runs at once; torch_xla.compile still makes one program."""

import threading
import time

import pytest
import torch
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch_xla.experimental import eager_mode, eager_mode_context, is_eager_mode


@pytest.fixture
def eager(device):
    with eager_mode_context(True):
        yield device


@pytest.fixture
def eager_everywhere(device):
    eager_mode(True)
    yield device
    eager_mode(False)


def count(metric: str) -> int:
    data = met.metric_data(metric)
    return data[0] if data else 0


def start_counting():
    xm.wait_device_ops()
    met.clear_all()


def test_is_switched():
    assert not is_eager_mode()
    eager_mode(True)
    assert is_eager_mode()
    with eager_mode_context(False) as before:
        assert before
        assert not is_eager_mode()
    assert is_eager_mode()
    eager_mode(False)
    assert not is_eager_mode()


def test_each_operation_runs_at_once(eager):
    x = torch.ones(5, 5, device=eager)
    start_counting()
    y = x * 5
    y += 1
    assert count("EagerOpExecuteTime") == 2
    assert count("ExecuteTime") == 0
    assert torch_xla._XLAC._live_nodes() == 0
    assert y.sum().item() == 150


def test_an_operation_compiles_once(eager):
    x = torch.randn(5, 5, device=eager)
    torch.logsumexp(x, 0)
    start_counting()
    for _ in range(3):
        torch.logsumexp(x, 0)
    assert count("EagerOpCompileTime") == 0
    assert count("EagerOpExecuteTime") == 3


def test_random_numbers(eager):
    a, b = torch.randn(12, 13, device=eager), torch.randn(12, 13, device=eager)
    assert not torch.equal(a, b)
    torch.manual_seed(3)
    a = torch.randn(4, device=eager)
    torch.manual_seed(3)
    assert torch.equal(a, torch.randn(4, device=eager))


def test_training(eager):
    def train(device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        x = torch.arange(24.0).reshape(6, 4).sin().to(device)
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        return loss.item()

    assert train(eager) == pytest.approx(train("cpu"), rel=1e-4)


def some_function(t):
    return torch.cos(torch.sin(t)) * 2


def check_one_program(compiled, x):
    """Of some_function(), compiled in some way."""
    want = some_function(x)
    start_counting()
    got = compiled(x)
    xm.wait_device_ops()
    assert count("ExecuteTime") == 1
    assert count("EagerOpExecuteTime") == 0
    assert is_eager_mode()
    torch.testing.assert_close(got.cpu(), want.cpu())


def test_compiled_functions_are_one_program(eager):
    check_one_program(torch_xla.compile(some_function), torch.randn(5, 5, device=eager))


def test_graphs_of_torch_compile_are_one_program(eager):
    x = torch.randn(5, 5, device=eager)
    compiled = torch.compile(some_function, backend="openxla")
    compiled(x)
    check_one_program(compiled, x)


def test_the_mode_comes_back_after_an_error(eager):
    def fail(t):
        raise KeyError("no")

    with pytest.raises(KeyError):
        torch_xla.compile(fail)(torch.ones(1, device=eager))
    assert is_eager_mode()


def test_compiled_functions_of_two_threads_leave_the_mode_as_it_was(eager_everywhere):
    both, modes = threading.Barrier(2), []

    @torch_xla.compile
    def function(x, first: bool):
        both.wait(30)  # both have begun
        if not first:
            time.sleep(0.05)  # the other one ends first
        return x * 2

    def work(first: bool):
        function(torch.ones(2, device=eager_everywhere), first)
        modes.append(is_eager_mode())

    threads = [threading.Thread(target=work, args=(first,)) for first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert modes == [True, True] and is_eager_mode()


def test_a_block_that_two_threads_are_in_leaves_each_its_mode(device):
    block, steps, modes = torch_xla.compile(), [threading.Event() for _ in range(3)], []

    def first():
        with eager_mode_context(True):
            with block:
                steps[0].set()
                assert steps[1].wait(30)
            modes.append(is_eager_mode())
        steps[2].set()

    def second():
        assert steps[0].wait(30)
        with block:
            steps[1].set()
            assert steps[2].wait(30)
        modes.append(is_eager_mode())

    threads = [threading.Thread(target=work) for work in (first, second)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert modes == [True, False]


def test_the_mode_of_a_thread_is_its_own(device):
    modes = []

    def work():
        eager_mode(True)
        modes.append(is_eager_mode())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert modes == [True] and not is_eager_mode()


def test_threads_have_the_mode_of_the_main_thread(eager_everywhere):
    modes = []
    thread = threading.Thread(target=lambda: modes.append(is_eager_mode()))
    thread.start()
    thread.join()
    assert modes == [True]


def test_what_is_pending_runs_when_the_mode_is_switched_on(device):
    x = torch.ones(3, device=device) + 1
    with eager_mode_context(True):
        y = x * 2
        assert torch_xla._XLAC._live_nodes() == 0
    assert (x + y).tolist() == [6, 6, 6]


@pytest.mark.checks_values
def test_an_error_is_told_by_the_value(eager):
    table = torch.ones(3, device=eager)
    bad = table[torch.tensor([7], device=eager)]
    with pytest.raises(IndexError):
        bad.item()
    assert table.sum().item() == 3
