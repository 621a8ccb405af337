"""autocast in the form of the original, which takes the device first."""

import torch


class autocast(torch.amp.autocast_mode.autocast):
    """`torch.autocast("xla")`, with bfloat16 by default.

    Args:
        device: an xla device, as `torch_xla.device()`.
        enabled: False makes it do nothing.
        dtype: torch.bfloat16 or torch.float16.
        cache_enabled: as in torch.autocast.

    Raises ValueError for a device of another type.
    """

    def __init__(self, device, enabled: bool = True, dtype: torch.dtype = torch.bfloat16, cache_enabled: bool = True):
        device = torch.device(device)
        if device.type != "xla":
            raise ValueError(f"expected an xla device, but got {device}; use torch.autocast('{device.type}')")
        super().__init__(device.type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
