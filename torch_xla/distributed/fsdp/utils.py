"""Modules with another forward: recomputed in backward, or linear layers by the user's function."""

import functools
from collections.abc import Callable
from types import MethodType

import torch
from torch.utils.checkpoint import set_checkpoint_early_stop

from ...utils.checkpoint import checkpoint
from ..spmd.xla_sharding import xla_patched_nn_linear_forward


def checkpoint_module(module: torch.nn.Module) -> torch.nn.Module:
    """Makes the module recompute its activations in backward, which saves their memory. Returns the module.

    The whole forward(), with its side effects, runs twice a step.
    """
    forward = module.forward

    @functools.wraps(forward)
    def forward_that_repeats(*args, **kwargs):
        with set_checkpoint_early_stop(False):
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    module.forward = forward_that_repeats
    return module


def apply_xla_patch_to_nn_linear(
    module: torch.nn.Module,
    patched_function: Callable[[torch.nn.Linear, torch.Tensor], torch.Tensor] = xla_patched_nn_linear_forward,
) -> torch.nn.Module:
    """Makes the module's linear layers give `patched_function(layer, input)`. Returns the module.

    Layers with another forward() than nn.Linear's stay as they are.
    """
    for layer in module.modules():
        if isinstance(layer, torch.nn.Linear) and getattr(layer.forward, "__func__", None) is torch.nn.Linear.forward:
            layer.forward = MethodType(patched_function, layer)
    return module
