"""Activation checkpointing by the original's name."""

import torch.utils.checkpoint

from ..core import xla_model
from .utils import for_each_instance


def checkpoint(function, *args, use_reentrant: bool = True, **kwargs):
    """Calls `function(*args)`; backward computes its activations again, which saves their memory.

    The second computation is behind a barrier (xm.optimization_barrier_): without one, as with PyTorch's own function,
    the program would find it equal to the first and keep the activations.

    Args:
        use_reentrant: by default True, as in the original.
        kwargs: as for torch.utils.checkpoint.checkpoint.

    Returns what `function` returns.
    """
    is_again = False

    def compute(*args, **kwargs):
        nonlocal is_again
        if is_again:
            tensors: list[torch.Tensor] = []
            for_each_instance((args, kwargs), _is_on_device, tensors.append)
            xla_model.optimization_barrier_(tensors)
        is_again = True
        return function(*args, **kwargs)

    return torch.utils.checkpoint.checkpoint(compute, *args, use_reentrant=use_reentrant, **kwargs)


def _is_on_device(value) -> bool:
    return isinstance(value, torch.Tensor) and xla_model.is_xla_tensor(value)
