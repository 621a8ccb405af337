"""A training loop holds on to nothing: nodes and cells go back to where they were, and memory stays."""

import gc
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import torch_xla

FIRST, LAST = 200, 2000
ALLOWED = 5 << 20


def resident_bytes() -> int:
    """The process's resident memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def train(device, steps: int, at_step=None) -> None:
    """A small loop with dropout, momentum, new batches and the loss read now and then."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 4)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        data, target = torch.randn(16, 32).to(device), torch.randint(4, (16,)).to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            loss.item()
        if at_step:
            at_step(step)


def live(device) -> tuple[int, int]:
    """The nodes and cells that are left after one more training."""
    train(device, 20)
    gc.collect()
    torch_xla.sync(wait=True)
    return torch_xla._XLAC._live_nodes(), torch_xla._XLAC._live_cells()


def test_counters_return_to_the_start(run_python):
    """In a process of its own: what other tests left goes away when it likes."""
    program = f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_leaks, torch_xla
        print([test_leaks.live(torch_xla.device()) for _ in range(3)])
    """
    assert run_python(program).strip().endswith("[(0, 0), (0, 0), (0, 0)]")


def test_memory_stays_between_step_200_and_2000(device):
    seen = {}

    def note(step: int) -> None:
        if step in (FIRST, LAST - 1):
            torch_xla.sync(wait=True)
            gc.collect()
            seen[step] = resident_bytes()

    train(device, LAST, note)
    growth = seen[LAST - 1] - seen[FIRST]
    assert growth < ALLOWED, f"grew by {growth >> 10} KB"
