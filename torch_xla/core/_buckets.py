"""Joins lists of tensors to a few flat ones, each sent as a whole."""

from collections.abc import Callable, Iterator, Sequence

import torch

LARGEST_MB = 25
_SMALLEST_MB = 1  # a smaller transfer takes about as long
_FEW = 4


def few(tensors: Sequence[torch.Tensor]) -> float:
    """A bucket size in megabytes that makes few buckets; the first ones are full while later tensors are computed."""
    return min(max(sum(t.nbytes for t in tensors) / 2**20 / _FEW, _SMALLEST_MB), LARGEST_MB)


def _buckets(tensors: Sequence[torch.Tensor], megabytes: float) -> Iterator[list[torch.Tensor]]:
    """Runs of tensors of one dtype, each of about this size or a single tensor."""
    by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        bucket = by_dtype.setdefault(tensor.dtype, [])
        if bucket and sum(t.nbytes for t in bucket) + tensor.nbytes > megabytes * 2**20:
            yield bucket
            bucket = by_dtype[tensor.dtype] = []
        bucket.append(tensor)
    yield from (bucket for bucket in by_dtype.values() if bucket)


def _join(tensors: list[torch.Tensor]) -> torch.Tensor:
    """All elements in one dim."""
    return tensors[0].reshape(-1) if len(tensors) == 1 else torch.cat([t.reshape(-1) for t in tensors])


def rewrite(
    tensors: Sequence[torch.Tensor],
    compute: Callable[[torch.Tensor], torch.Tensor],
    megabytes: float,
    scale: float = 1.0,
) -> None:
    """Overwrites the tensors by `compute` of them, joined to flat buckets, times `scale`.

    The last bucket is written first: then later operations wait for all transfers at once, and after the last step that
    can fail a program writes in place.
    """
    with torch.no_grad():
        buckets = list(_buckets(tensors, megabytes))
        results = [compute(_join(bucket)) for bucket in buckets]
        for bucket, result in zip(reversed(buckets), reversed(results)):
            for tensor, part in zip(bucket, result.split([t.numel() for t in bucket])):
                tensor.copy_(scaled(part.view(tensor.shape), scale))


def scaled(tensor: torch.Tensor, scale: float) -> torch.Tensor:
    return tensor if scale == 1.0 else tensor * scale
