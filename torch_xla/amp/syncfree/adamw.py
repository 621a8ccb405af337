"""AdamW that skips a step where a gradient overflowed."""

import torch

from ._step import SyncFree


class AdamW(SyncFree, torch.optim.AdamW):
    """torch.optim.AdamW with `step(found_inf=)`. It counts its steps on the device, as Adam."""

    def __init__(self, *args, capturable: bool = True, **kwargs):
        super().__init__(*args, capturable=capturable, **kwargs)
