"""The device beside the rest of a process: streams, threads, forks, signals, exit."""

import threading
import time

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import torch_xla


# ---- Streams and events ----
def test_accelerator(device):
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator().type == "xla"
    assert torch.accelerator.device_count() == 1
    x = torch.ones(2, device=device) + 1
    torch.accelerator.synchronize()
    assert x.tolist() == [2, 2]


def test_capability_of_the_accelerator(device):
    """The element types that it tells can be made, and converted to each other."""
    types = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool} <= types
    for dtype in types:
        x = torch.ones(3, dtype=dtype, device=device)
        assert all(x.to(other).dtype == other for other in types)
        assert x.cpu().to(torch.complex128).tolist() == [1] * 3


def test_streams(device):
    stream = torch.xla.Stream()
    assert stream.device == device and stream != torch.xla.default_stream()
    with torch.xla.stream(stream):
        assert torch.xla.current_stream() == stream
        x = torch.ones(2, device=device) + 1
    assert torch.xla.current_stream() == torch.xla.default_stream()
    stream.synchronize()
    assert stream.query()
    assert x.tolist() == [2, 2]


def test_events_time_what_was_recorded_between_them(device):
    x = torch.randn(512, 512, device=device)
    torch_xla.sync(wait=True)
    start, end = torch.xla.Event(enable_timing=True), torch.xla.Event(enable_timing=True)
    assert start.query()
    start.record()
    for _ in range(4):
        x = x @ x * 1e-3
    end.record()
    end.synchronize()
    assert start.query() and end.query()
    assert start.elapsed_time(end) > 0
    torch.xla.current_stream().wait_event(end)


def test_an_event_without_times_runs_nothing_until_somebody_looks(device, compiles):
    x = torch.arange(7.0, device=device).cosh() + 11
    event = torch.xla.Event()
    event.record()
    torch.xla.current_stream().wait_event(event)
    torch.xla.Stream().wait_stream(torch.xla.current_stream())
    assert compiles.value == 0
    while not event.query():
        pass
    assert compiles.value == 1
    event.record()
    event.synchronize()
    torch.testing.assert_close(x.cpu(), torch.arange(7.0).cosh() + 11)
    assert compiles.value == 1


# ---- Storage ----
def test_no_cell_or_node_is_left_behind(run_python):
    """In a process of its own: what other tests left goes away when it likes."""
    program = """
        import torch, torch_xla
        from torch_xla import _XLAC

        for _ in range(10):
            x = torch.randn(8, 8, device="xla", requires_grad=True)
            (x.t() @ x).relu().sum().backward()
            x.grad[1:].add_(1)
            x.grad.sum().item()
        del x
        torch_xla.sync(wait=True)
        print(_XLAC._live_cells(), _XLAC._live_nodes())
    """
    assert run_python(program).split() == ["0", "0"]


# ---- Threads ----
def test_threads_record_and_sync(device):
    results: dict[int, float] = {}
    errors = []

    def work(index: int):
        try:
            x = torch.full((16,), float(index), device=device, requires_grad=True)
            for _ in range(20):
                y = (x * x).sum()
                (grad,) = torch.autograd.grad(y, x)
                results[index] = grad.sum().item()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert results == {index: 32.0 * index for index in range(4)}


def test_tensors_may_die_on_another_thread(device):
    box = [torch.ones(4, device=device) + index for index in range(50)]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    torch_xla.sync(wait=True)


def test_a_wait_lets_other_threads_run(device):
    ticks = []
    done = threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    x = torch.randn(1500, 1500, device=device)
    for _ in range(3):
        x = x @ x * 1e-3
    before = len(ticks)
    torch_xla.sync(wait=True)
    during = len(ticks) - before
    done.set()
    thread.join()
    assert during > 0


# ---- Processes ----
def test_data_loader_workers_after_the_device_was_used(device):
    torch.ones(2, device=device).sum().item()
    data = TensorDataset(torch.arange(16.0), torch.arange(16))
    kept = torch.ones(3, device=device)  # the workers inherit and free it
    for _ in range(2):
        total = torch.zeros((), device=device)
        for x, _ in DataLoader(data, batch_size=4, num_workers=2):
            total += x.to(device).sum()
        assert total.item() == 120
    assert kept.tolist() == [1, 1, 1]


FORK = """
    import os, sys
    import torch, torch_xla
    x = torch.ones(3, device="xla")
    assert (x + 1).sum().item() == 6
    y = x + 1
    pid = os.fork()
    if pid == 0:
        assert torch.xla._is_in_bad_fork()
        torch.manual_seed(0)
        del y  # freeing is allowed
        try:
            (x + 1).tolist()
        except RuntimeError as error:
            print("child:", error, flush=True)
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    print("parent:", y.tolist())
"""


def test_using_the_device_in_a_forked_child_raises(run_python):
    out = run_python(FORK)
    assert "child: " in out and "fork" in out
    assert "parent: [2.0, 2.0, 2.0]" in out


def test_a_child_of_a_parent_that_never_used_the_device_may_use_it(run_python):
    out = run_python(
        """
        import os
        import torch, torch_xla
        pid = os.fork()
        if pid == 0:
            assert not torch.xla._is_in_bad_fork()
            print("child:", (torch.ones(2, device="xla") + 1).tolist(), flush=True)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """
    )
    assert out == "child: [2.0, 2.0]\n"


# ---- Exit and signals ----
@pytest.mark.parametrize(
    "last",
    [
        "pass",
        "x.sum()",  # pending
        "torch_xla.sync()",  # running
        "import sys; sys.exit(0)",
        "kept = [x]; import builtins; builtins.kept = kept",
        "import threading; threading.Thread(target=lambda: torch_xla.sync(wait=True)).start()",
    ],
)
def test_exit_is_clean(run_python, last):
    out = run_python(
        f"""
        import torch, torch_xla
        x = torch.randn(600, 600, device="xla")
        for _ in range(4):
            x = x @ x * 1e-3
        {last}
        """
    )
    assert out == ""


def test_ctrl_c_ends_a_wait(run_python):
    out = run_python(
        """
        import os, signal, threading
        import torch, torch_xla
        x = torch.randn(2500, 2500, device="xla")
        torch_xla.sync(wait=True)
        try:
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            for _ in range(2000):  # more than the time limit of the process
                x = x @ x * 1e-3
            torch_xla.sync()
            torch_xla.sync(wait=True)
            print("ended")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        os._exit(0)
        """
    )
    assert out == "interrupted\n"


# ---- Errors ----
def test_shape_errors_come_at_once_and_are_pytorchs_own(device):
    with pytest.raises(RuntimeError, match=r"(?i)size|shape|mat1"):
        torch.ones(2, 3, device=device) @ torch.ones(2, 3, device=device)
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        torch.ones(2, device=device) + torch.ones(3, device=device)
    with pytest.raises(IndexError):
        torch.ones(2, device=device).sum(dim=3)


@pytest.mark.checks_values
def test_an_error_of_a_run_is_an_exception_and_the_device_goes_on(device):
    index = torch.tensor([0, 99], device=device)
    with pytest.raises((RuntimeError, IndexError)):
        F.embedding(index, torch.ones(4, 2, device=device)).tolist()
    torch_xla.sync()
    assert (torch.ones(2, device=device) + 1).tolist() == [2, 2]
