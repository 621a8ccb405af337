"""Collectives with gradients (`xf`)."""

import torch

from .. import runtime as _runtime
from . import _collectives


def all_reduce(reduce_type: str, value: torch.Tensor, scale: float = 1.0, groups: list | None = None) -> torch.Tensor:
    """As xm.all_reduce of one tensor; the gradient is the sum over the replicas."""
    return _collectives.all_reduce(reduce_type, value, scale, groups)


def all_gather(value: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """As xm.all_gather; each replica gets the gradient of its part."""
    return _collectives.all_gather(value, dim)


def distributed_mm(w: torch.Tensor, x: torch.Tensor, split: int = 1) -> torch.Tensor:
    """`W @ x` with the columns of W spread over the replicas, and a separate x in each.

    Args:
        w: this replica's columns, of shape [n, m / replicas].
        x: this replica's, of shape [m, k].
        split: number of parts in which the product is computed, to save memory.

    Returns this replica's product, of shape [n, k]. Raises ValueError for an m that does not fit, or if k is no
    multiple of `split`.
    """
    count, rank, rows = _runtime.world_size(), _runtime.global_ordinal(), w.size(1)
    if x.size(0) != rows * count:
        raise ValueError(f"x has {x.size(0)} rows when it should have {rows * count}: {count} x {rows} columns of w")
    if x.size(1) % split:
        raise ValueError(f"split={split} does not divide the {x.size(1)} columns of x")
    products = []
    for part in x.chunk(split, dim=1):
        of_all = all_reduce("sum", w @ all_gather(part, dim=1).narrow(0, rank * rows, rows))
        products.append(of_all.narrow(1, rank * part.size(1), part.size(1)))
    return torch.cat(products, dim=1)


class SyncBatchNorm(torch.nn.BatchNorm2d):
    """Batch norm over the batches of all replicas. Takes what BatchNorm takes: inputs of 2 dims or more."""

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dims, but got {input.dim()}")

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The normalized batch; in training it updates the running statistics with those of all replicas."""
        takes_batch_statistics = self.training or self.running_mean is None
        if _runtime.world_size() == 1 or not takes_batch_statistics:
            return super().forward(batch)
        self._check_input_dim(batch)
        dims = [d for d in range(batch.dim()) if d != 1]
        shape = [1, -1] + [1] * (batch.dim() - 2)
        count = _collectives.all_reduce("sum", batch.new_tensor(batch.numel() / batch.size(1)))
        mean = all_reduce("sum", batch.sum(dims)) / count
        centered = batch - mean.view(shape)
        variance = all_reduce("sum", (centered * centered).sum(dims)) / count
        if self.training and self.track_running_stats:
            self._update_running_stats(mean.detach(), variance.detach() * (count / (count - 1)))
        normal = centered * torch.rsqrt(variance + self.eps).view(shape)
        return torch.addcmul(self.bias.view(shape), normal, self.weight.view(shape)) if self.affine else normal

    def _update_running_stats(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        self.num_batches_tracked.add_(1)
        weight = self.momentum
        if weight is None:  # a cumulative average
            weight = 1.0 / self.num_batches_tracked.to(mean.dtype)
        for statistic, value in ((self.running_mean, mean), (self.running_var, variance)):
            statistic.copy_(statistic + weight * (value.to(statistic.dtype) - statistic))
