"""Automatic mixed precision: `torch_xla.amp.autocast`."""

from .autocast_mode import autocast

__all__ = ["autocast"]
