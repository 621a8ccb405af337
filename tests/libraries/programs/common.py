"""What the programs share: data, a module for Lightning, a comparison of losses, the look for fallbacks."""

import torch
from torch import nn
from torch.utils.data import TensorDataset


def dataset() -> TensorDataset:
    """32 points of a linear map."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(32, 4, generator=generator)
    return TensorDataset(x, x @ torch.randn(4, 2, generator=generator))


def model() -> nn.Module:
    """A small model with fixed weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))


def take_step(net: nn.Module, loss: torch.Tensor, optimizer, schedule) -> float:
    """A step of plain PyTorch. The loss as a number."""
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    return loss.item()


def check_falling(losses: list[float]) -> None:
    """Fails unless the second half is below the first."""
    half = len(losses) // 2
    assert sum(losses[half:]) < sum(losses[:half]), losses


def check_losses(losses: list[float], expected: list[float]) -> None:
    """Fails unless they agree and fall."""
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=1e-3, atol=1e-5)
    check_falling(losses)


def check_no_fallbacks() -> None:
    """Fails if an operation of the device has run on the CPU; reading a number is none."""
    import torch_xla.debug.metrics as met

    assert set(met.executed_fallback_ops()) <= {"aten::_local_scalar_dense"}, met.executed_fallback_ops()
