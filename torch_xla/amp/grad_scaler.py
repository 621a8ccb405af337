"""GradScaler of the device, by the original's name."""

import torch


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler("xla")`. Takes its arguments but the device."""

    def __init__(self, *args, **kwargs):
        super().__init__("xla", *args, **kwargs)
