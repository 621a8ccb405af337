"""Optimizers that skip a step where a gradient overflowed, decided on the device: nothing is read from it."""

from .adam import Adam
from .adamw import AdamW
from .sgd import SGD

__all__ = ["SGD", "Adam", "AdamW"]
