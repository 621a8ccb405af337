"""What the files of this folder share: the names of the devices, what is pending there, and a comparison."""

import torch

import torch_xla.debug.metrics as met
from torch_xla import _XLAC

DEVICES = ("xla:0", "xla:1")


def pending(device: str) -> bool:
    return "= " in _XLAC._pending_graph_text(device)


def counted(name: str) -> int:
    return met.counter_value(name) or 0


def same(x: torch.Tensor, expected: torch.Tensor, device: str) -> None:
    assert str(x.device) == device
    torch.testing.assert_close(x.cpu(), expected)
