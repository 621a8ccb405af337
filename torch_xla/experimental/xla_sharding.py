"""Old name of torch_xla.distributed.spmd, for programs written for torch_xla 2.0."""

from ..distributed.spmd import (
    apply_xla_patch_to_nn_linear,
    clear_sharding,
    HybridMesh,
    mark_sharding,
    Mesh,
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
    "mark_sharding",
    "xla_patched_nn_linear_forward",
]
