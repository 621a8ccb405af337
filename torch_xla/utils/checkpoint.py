"""Activation checkpointing by the original's name."""

import torch.utils.checkpoint

from ..core import xla_model
from .utils import for_each_instance


def checkpoint(function, *args, use_reentrant: bool = True, **kwargs):
    """Calls `function(*args)`; backward recomputes its activations, which saves their memory.

    A barrier precedes the second computation (xm.optimization_barrier_): without it, as with PyTorch's own function,
    the program would merge it with the first and keep the activations.

    Args:
        use_reentrant: by default True, as in the original.
        kwargs: as for torch.utils.checkpoint.checkpoint.

    Returns the function's result.
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
