"""Old name of the sharded tensors of torch_xla.distributed.spmd, for programs written for torch_xla 2.0."""

from ..distributed.spmd import XLAShard, XLAShardedTensor

__all__ = ["XLAShard", "XLAShardedTensor"]
