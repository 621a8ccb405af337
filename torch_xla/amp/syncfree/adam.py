"""Adam that skips a step if a gradient overflowed."""

import torch

from ._step import CountingSyncFree


class Adam(CountingSyncFree, torch.optim.Adam):
    """torch.optim.Adam with `step(found_inf=)`."""
