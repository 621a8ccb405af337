"""Fully sharded data parallelism. The names are here; with one device there is nothing to shard."""

from .checkpointing import checkpoint_module
from .xla_fully_sharded_data_parallel import (
    consolidate_sharded_model_checkpoints,
    consolidate_sharded_state_dicts,
    XlaFullyShardedDataParallel,
)

__all__ = [
    "XlaFullyShardedDataParallel",
    "checkpoint_module",
    "consolidate_sharded_model_checkpoints",
    "consolidate_sharded_state_dicts",
]
