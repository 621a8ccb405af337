"""`torch.xla.amp`: mixed precision by the names of `torch.cuda.amp`."""

import torch


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler("xla")`. Takes its arguments, except the device."""

    def __init__(self, *args, **kwargs):
        super().__init__("xla", *args, **kwargs)


class autocast(torch.amp.autocast_mode.autocast):
    """`torch.autocast("xla")`, with bfloat16 by default.

    Args:
        enabled: False makes it do nothing.
        dtype: torch.bfloat16 or torch.float16.
        cache_enabled: as in torch.autocast.
    """

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.bfloat16, cache_enabled: bool = True):
        super().__init__("xla", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def custom_fwd(fwd=None, *, cast_inputs: torch.dtype | None = None):
    """`torch.amp.custom_fwd` for the device: decorates `forward` of a torch.autograd.Function.

    Args:
        fwd: the function; without it a decorator is returned.
        cast_inputs: within autocast, `fwd` gets floating-point tensors in this dtype and runs without autocast.
    """
    return torch.amp.custom_fwd(fwd, device_type="xla", cast_inputs=cast_inputs)


def custom_bwd(bwd=None):
    """`torch.amp.custom_bwd` for the device: `backward` runs with the autocast state of its `forward`."""
    return torch.amp.custom_bwd(bwd, device_type="xla")


def is_autocast_enabled() -> bool:
    """Whether autocast is on for the device, on this thread."""
    return torch.is_autocast_enabled("xla")


def set_autocast_enabled(enabled: bool) -> None:
    """Turns autocast for the device on or off, on this thread."""
    torch.set_autocast_enabled("xla", enabled)


def get_autocast_dtype() -> torch.dtype:
    """The dtype of autocast: bfloat16, unless set."""
    return torch.get_autocast_dtype("xla")


def set_autocast_dtype(dtype: torch.dtype) -> None:
    """Sets the dtype of autocast."""
    torch.set_autocast_dtype("xla", dtype)
