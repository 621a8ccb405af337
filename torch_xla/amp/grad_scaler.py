"""GradScaler of the device, by the original's name."""

from .._device_module.amp import GradScaler

__all__ = ["GradScaler"]
