"""SGD that skips a step if a gradient overflowed."""

import torch

from ._step import SyncFree


class SGD(SyncFree, torch.optim.SGD):
    """torch.optim.SGD with `step(found_inf=)`."""
