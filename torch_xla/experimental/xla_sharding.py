"""Old name of torch_xla.distributed.spmd, for programs written for torch_xla 2.0."""

from ..distributed.spmd import (
    apply_xla_patch_to_nn_linear,
    clear_sharding,
    get_1d_mesh,
    HybridMesh,
    mark_sharding,
    Mesh,
    set_global_mesh,
    ShardingSpec,
    ShardingType,
    xla_patched_nn_linear_forward,
    XLAPatchedLinear,
)

__all__ = [
    "HybridMesh",
    "Mesh",
    "ShardingSpec",
    "ShardingType",
    "XLAPatchedLinear",
    "apply_xla_patch_to_nn_linear",
    "clear_sharding",
    "get_1d_mesh",
    "mark_sharding",
    "set_global_mesh",
    "xla_patched_nn_linear_forward",
]
