"""Sharding of tensors over a mesh of devices (`xs`)."""

from . import _operations  # noqa: F401 (registers them)
from .api import auto_policy, xla_distribute_module, xla_distribute_tensor
from .mesh import get_1d_mesh, get_global_mesh, HybridMesh, Mesh, set_global_mesh
from .op_sharding import OpSharding, ShardingType
from .xla_sharded_tensor import sharding_spec, XLAShard, XLAShardedTensor
from .xla_sharding import (
    _mark_manual_sharding,  # noqa: F401 (of programs for the original)
    annotate_custom_sharding,
    apply_backward_optimization_barrier,
    apply_xla_patch_to_nn_linear,
    clear_sharding,
    disable_manual_sharding,
    enable_manual_sharding,
    mark_sharding,
    mark_sharding_with_gradients,
    MarkShardingFunction,
    shard_as,
    ShardingSpec,
    unwrap_sharded_tensor,
    wrap_as_sharded_tensor,
    wrap_if_sharded,
    xla_patched_nn_linear_forward,
    XLAPatchedLinear,
)

__all__ = [
    "HybridMesh",
    "MarkShardingFunction",
    "Mesh",
    "OpSharding",
    "ShardingSpec",
    "ShardingType",
    "XLAPatchedLinear",
    "XLAShard",
    "XLAShardedTensor",
    "annotate_custom_sharding",
    "apply_backward_optimization_barrier",
    "apply_xla_patch_to_nn_linear",
    "auto_policy",
    "clear_sharding",
    "disable_manual_sharding",
    "enable_manual_sharding",
    "get_1d_mesh",
    "get_global_mesh",
    "mark_sharding",
    "mark_sharding_with_gradients",
    "set_global_mesh",
    "shard_as",
    "sharding_spec",
    "unwrap_sharded_tensor",
    "wrap_as_sharded_tensor",
    "wrap_if_sharded",
    "xla_distribute_module",
    "xla_distribute_tensor",
    "xla_patched_nn_linear_forward",
]
