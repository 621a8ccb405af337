"""Old name of what torch_xla.distributed.spmd says of sharded tensors, for programs written for torch_xla 2.0."""

from ..distributed.spmd import XLAShard, XLAShardedTensor

__all__ = ["XLAShard", "XLAShardedTensor"]
