"""Fully sharded data parallelism. The names are here; a run has one replica, which has all of each parameter."""

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
