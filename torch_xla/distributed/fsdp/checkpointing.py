"""Modules that compute their activations again in backward."""

import functools

import torch

from ...utils.checkpoint import checkpoint


def checkpoint_module(module: torch.nn.Module) -> torch.nn.Module:
    """Makes the module compute its activations again in backward, which saves their memory. Returns it."""
    module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
    return module
