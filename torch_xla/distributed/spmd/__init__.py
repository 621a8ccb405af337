"""Sharding of tensors over a mesh of devices (`xs`). A mesh has one device, which has all of each tensor."""

from ._dtensor import xla_distribute_module, xla_distribute_tensor
from .xla_sharding import (
    apply_backward_optimization_barrier,
    apply_xla_patch_to_nn_linear,
    clear_sharding,
    get_1d_mesh,
    get_global_mesh,
    HybridMesh,
    mark_sharding,
    mark_sharding_with_gradients,
    Mesh,
    set_global_mesh,
    ShardingSpec,
    ShardingType,
    wrap_if_sharded,
    xla_patched_nn_linear_forward,
    XLAShardedTensor,
)

__all__ = [
    "HybridMesh",
    "Mesh",
    "ShardingSpec",
    "ShardingType",
    "XLAShardedTensor",
    "apply_backward_optimization_barrier",
    "apply_xla_patch_to_nn_linear",
    "clear_sharding",
    "get_1d_mesh",
    "get_global_mesh",
    "mark_sharding",
    "mark_sharding_with_gradients",
    "set_global_mesh",
    "wrap_if_sharded",
    "xla_distribute_module",
    "xla_distribute_tensor",
    "xla_patched_nn_linear_forward",
]
