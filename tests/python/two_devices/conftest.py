"""Each test here finds both devices empty."""

import pytest
import torch

import torch_xla.core.xla_model as xm


@pytest.fixture(autouse=True)
def clean(device):
    """Both devices empty, with one seed; the current one is the first."""
    xm.wait_device_ops()
    torch.xla.synchronize(1)
    yield
    torch.xla.set_device(0)
