"""The device beside the rest of a process: threads, workers, forks, exit."""

import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import torch_xla


# ---- What it is ----
def test_capability_of_the_accelerator(device):
    """The element types that it tells can be made, and converted to each other."""
    types = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool} <= types
    for dtype in types:
        x = torch.ones(3, dtype=dtype, device=device)
        assert all(x.to(other).dtype == other for other in types)
        assert x.cpu().to(torch.complex128).tolist() == [1] * 3


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


# ---- Exit ----
@pytest.mark.parametrize(
    "last",
    [
        "pass",
        "x.sum()",  # pending
        "torch_xla.sync()",  # running
        "import sys; sys.exit(0)",
        "import gc; gc.collect(); x[0] += 1",
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
