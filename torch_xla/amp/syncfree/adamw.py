"""AdamW that skips a step if a gradient overflowed."""

import torch

from ._step import CountingSyncFree


class AdamW(CountingSyncFree, torch.optim.AdamW):
    """torch.optim.AdamW with `step(found_inf=)`."""
