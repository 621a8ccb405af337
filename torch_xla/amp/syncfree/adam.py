"""Adam that skips a step where a gradient overflowed."""

import torch

from ._step import SyncFree


class Adam(SyncFree, torch.optim.Adam):
    """torch.optim.Adam with `step(found_inf=)`. It counts its steps on the device: which are skipped is known there."""

    def __init__(self, *args, capturable: bool = True, **kwargs):
        super().__init__(*args, capturable=capturable, **kwargs)
