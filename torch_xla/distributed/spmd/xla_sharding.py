"""Meshes, partition specs and what marks tensors with them.

They are checked. Over a mesh of one device they change nothing, over a larger one they are refused.
"""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from ... import _api, _XLAC

PartitionSpec = tuple[int | str | tuple[int | str, ...] | None, ...]
_global_mesh: "Mesh | None" = None
_on_one_device = "{maximal device=0}"  # XLA's word for the whole tensor on a mesh of one device
_shardings = WeakTensorKeyDictionary()  # XLA's text for each tensor that is marked


class ShardingType(enum.IntEnum):
    """How a tensor lies on the devices."""

    REPLICATED = 0
    MAXIMAL = 1
    TUPLE = 2
    TILED = 3
    MANUAL = 4
    PARTIAL = 5
    UNKNOWN = 6


class Mesh:
    """Devices in a grid.

    Args:
        device_ids: numbers of the devices, flat (list or numpy array).
        mesh_shape: size of each axis of the grid; their product is the number of devices.
        axis_names: a name for each axis, or None.

    Raises ValueError if these do not fit, or for devices that do not exist.
    """

    def __init__(self, device_ids, mesh_shape: Sequence[int], axis_names: Sequence[str] | None = None):
        self.device_ids = np.array(device_ids).reshape(-1)
        self.mesh_shape = tuple(int(size) for size in mesh_shape)
        self.axis_names = None if axis_names is None else tuple(axis_names)
        if math.prod(self.mesh_shape) != len(self.device_ids):
            raise ValueError(f"mesh_shape {self.mesh_shape} does not hold {len(self.device_ids)} devices")
        if sorted(self.device_ids.tolist()) != list(range(_api.device_count())):
            raise ValueError(
                f"device_ids {self.device_ids.tolist()} are not the run's devices {list(range(_api.device_count()))}"
            )
        if self.axis_names is not None:
            self._check_names()

    def _check_names(self) -> None:
        if len(self.axis_names) != len(self.mesh_shape):
            raise ValueError(f"axis_names {self.axis_names} are not as many as the axes of {self.mesh_shape}")
        if len(set(self.axis_names)) != len(self.axis_names):
            raise ValueError(f"a name occurs twice in axis_names {self.axis_names}")

    def size(self) -> int:
        """The number of devices."""
        return len(self.device_ids)

    def shape(self) -> dict:
        """Size of each axis by its name (by its number, without names)."""
        return dict(zip(self.axis_names or range(len(self.mesh_shape)), self.mesh_shape))

    def get_axis_name_idx(self, name: str) -> int | None:
        """Number of the axis of that name. None if there is none."""
        return self.axis_names.index(name) if self.axis_names and name in self.axis_names else None

    def get_logical_mesh(self) -> np.ndarray:
        """The devices' numbers, in the shape of the mesh."""
        return self.device_ids.reshape(self.mesh_shape)

    def _axis(self, axis) -> int:
        number = self.get_axis_name_idx(axis) if isinstance(axis, str) else axis
        if number is None or not 0 <= number < len(self.mesh_shape):
            raise ValueError(f"axis {axis!r} is none of the mesh's: {list(self.shape())}")
        return number


class HybridMesh(Mesh):
    """A mesh over several machines.

    Args:
        ici_mesh_shape: the axes within a machine.
        dcn_mesh_shape: the axes between machines; by default all 1.
        axis_names: as for Mesh.
    """

    def __init__(
        self,
        *,
        ici_mesh_shape: Sequence[int],
        dcn_mesh_shape: Sequence[int] | None = None,
        axis_names: Sequence[str] | None = None,
    ):
        outer = [1] * len(ici_mesh_shape) if dcn_mesh_shape is None else dcn_mesh_shape
        if len(outer) != len(ici_mesh_shape):
            raise ValueError(f"dcn_mesh_shape {outer} has not as many axes as ici_mesh_shape {ici_mesh_shape}")
        shape = [a * b for a, b in zip(ici_mesh_shape, outer)]
        super().__init__(list(range(math.prod(shape))), shape, axis_names)


def set_global_mesh(mesh: Mesh) -> None:
    """Sets the mesh that get_global_mesh() returns."""
    global _global_mesh
    _global_mesh = mesh


def get_global_mesh() -> Mesh | None:
    """The mesh of set_global_mesh(). None if it was not called."""
    return _global_mesh


def get_1d_mesh(axis_name: str | None = None) -> Mesh:
    """All devices along one axis."""
    count = _api.device_count()
    return Mesh(list(range(count)), (count,), None if axis_name is None else (axis_name,))


def _check_spec(mesh: Mesh, partition_spec: PartitionSpec) -> None:
    if mesh.size() > 1:
        raise NotImplementedError(
            f"a tensor over a mesh of {mesh.size()} devices needs collectives between them, which are not there yet"
        )
    used = []
    for entry in partition_spec:
        axes = entry if isinstance(entry, tuple) else () if entry is None else (entry,)
        used += [mesh._axis(axis) for axis in axes]
    if len(set(used)) != len(used):
        raise ValueError(f"an axis of the mesh occurs twice in partition_spec {partition_spec}")


@dataclass
class ShardingSpec:
    """Which axes of the mesh the dims of a tensor are spread over.

    Args:
        mesh: the devices.
        partition_spec: for each dim an axis (number or name), a tuple of axes, or None for a dim that is not cut.
        minibatch: each process holds its own part of the batch.

    Raises ValueError for an axis that does not exist or occurs twice, NotImplementedError for a mesh of several
    devices.
    """

    mesh: Mesh
    partition_spec: PartitionSpec
    minibatch: bool = False

    def __post_init__(self):
        _check_spec(self.mesh, self.partition_spec)

    def can_apply(self, t: torch.Tensor) -> bool:
        """True if the spec has as many entries as `t` has dims."""
        return len(t.shape) == len(self.partition_spec)

    def apply(self, t: torch.Tensor) -> None:
        """mark_sharding() of `t`."""
        mark_sharding(t, self.mesh, self.partition_spec)


XLAShardedTensor = torch.Tensor


def mark_sharding(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """Spreads the tensor over the mesh, in place: over one device, which changes nothing.

    Args:
        t: a tensor on the device xla.
        mesh, partition_spec: as for ShardingSpec, with an entry for each dim of `t`.

    Returns `t`. Raises ValueError for a tensor elsewhere or a spec that does not fit, NotImplementedError for a mesh of
    several devices.
    """
    if t.device.type != "xla":
        raise ValueError(f"only tensors on the device xla can be sharded, and this one is on {t.device}")
    if len(partition_spec) != t.dim():
        raise ValueError(f"partition_spec {partition_spec} has not one entry for each dim of shape {list(t.shape)}")
    _check_spec(mesh, partition_spec)
    _shardings[t] = _on_one_device
    return t


def mark_sharding_with_gradients(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """As mark_sharding(), of the gradient too. Returns the tensor."""
    return mark_sharding(t, mesh, partition_spec)


def clear_sharding(t: torch.Tensor) -> torch.Tensor:
    """Takes mark_sharding() back. Returns the tensor."""
    _shardings.pop(t, None)
    return t


def sharding_spec(t: torch.Tensor) -> str:
    """How mark_sharding() has placed the tensor, in XLA's words. Empty for one that is not marked."""
    return _shardings.get(t, "")


_XLAC._get_xla_sharding_spec = sharding_spec


def wrap_if_sharded(x):
    """`x`: no tensor is spread over devices."""
    return x


def xla_patched_nn_linear_forward(m: torch.nn.Linear, input: torch.Tensor) -> torch.Tensor:
    """What the layer gives for `input`, of shape [..., in_features]."""
    return torch.nn.functional.linear(input, m.weight, m.bias)


def apply_xla_patch_to_nn_linear(module: torch.nn.Module, patched_function=None) -> torch.nn.Module:
    """The module: no tensor is spread over devices that products of joined dims would disturb."""
    return module


def apply_backward_optimization_barrier(module: torch.nn.Module) -> torch.nn.Module:
    """The module: it needs no barrier in its backward."""
    return module
