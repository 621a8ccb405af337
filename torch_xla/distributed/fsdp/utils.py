"""Modules that compute their activations again in backward."""

import functools

import torch
from torch.utils.checkpoint import set_checkpoint_early_stop

from ...utils.checkpoint import checkpoint


def checkpoint_module(module: torch.nn.Module) -> torch.nn.Module:
    """Makes the module compute its activations again in backward, which saves their memory. Returns it.

    The whole forward() runs twice a step, with what else it does.
    """
    forward = module.forward

    @functools.wraps(forward)
    def forward_that_repeats(*args, **kwargs):
        with set_checkpoint_early_stop(False):
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    module.forward = forward_that_repeats
    return module
