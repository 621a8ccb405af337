"""Marks over the devices that a plugin has in this process."""

import torch

from .mesh import Mesh
from .op_sharding import OpSharding, PartitionSpec


def check(mesh: Mesh) -> None:
    """Raises NotImplementedError."""
    raise NotImplementedError(
        f"a mesh of {mesh.size()} devices of a plugin needs collectives that the compiler adds, which are not there "
        "yet; the devices of one process of the embedded engine can have one (PJRT_DEVICE=CPU, CPU_NUM_DEVICES)"
    )


def spread(t: torch.Tensor, sharding: OpSharding, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """Spreads the tensor's value over the mesh, in place. Returns it."""
    raise NotImplementedError
