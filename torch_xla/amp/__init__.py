"""Automatic mixed precision: `torch_xla.amp.autocast`, `GradScaler`, `syncfree`."""

from .autocast_mode import autocast
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast"]
