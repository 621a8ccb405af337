"""Collectives that gradients go through (`xf`). The run has one replica: the gradient is what one replica gets."""

import torch

from . import _collectives


def all_reduce(reduce_type: str, value: torch.Tensor, scale: float = 1.0, groups: list | None = None) -> torch.Tensor:
    """As xm.all_reduce of one tensor; the gradient is the sum over the replicas."""
    return _collectives.all_reduce(reduce_type, value, scale, groups)


def all_gather(value: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """As xm.all_gather; each replica gets the gradient of its part."""
    return _collectives.all_gather(value, dim)


def distributed_mm(w: torch.Tensor, x: torch.Tensor, split: int = 1) -> torch.Tensor:
    """`W @ x` where the rows of W are spread over the replicas.

    Args:
        w: this replica's rows, of shape [n / replicas, m].
        x: of shape [m, k].
        split: in how many parts the product is computed, to need less memory. Raises ValueError if k is no multiple.

    Returns a tensor of shape [n, k].
    """
    if x.size(1) % split:
        raise ValueError(f"split={split} does not divide the {x.size(1)} columns of x")
    return torch.cat([all_gather(w @ part) for part in x.chunk(split, dim=1)], dim=1)


class SyncBatchNorm(torch.nn.BatchNorm2d):
    """Batch norm over the batches of all replicas. Takes what BatchNorm takes: inputs of 2 dims or more."""

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dims, but got {input.dim()}")
