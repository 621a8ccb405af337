"""Optimizers that skip a step if a gradient overflowed. The device decides, so nothing is read from it."""

from .adam import Adam
from .adamw import AdamW
from .sgd import SGD

__all__ = ["SGD", "Adam", "AdamW"]
