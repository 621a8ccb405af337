"""Activation checkpointing by the original's name."""

import torch.utils.checkpoint


def checkpoint(function, *args, use_reentrant: bool = True, **kwargs):
    """Calls `function(*args)`; backward computes its activations again, which saves their memory.

    Args:
        use_reentrant: by default True, as in the original.
        kwargs: as for torch.utils.checkpoint.checkpoint.

    Returns what `function` returns.
    """
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=use_reentrant, **kwargs)
