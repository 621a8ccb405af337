"""Meshes: grids of devices for spreading tensors."""

import ast
import math
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from ... import runtime
from .op_sharding import OpSharding, PartitionSpec

_global_mesh: "Mesh | None" = None


class _MeshError(ValueError, AssertionError):
    """Arguments of a mesh that do not fit; programs for the original expect its AssertionError."""


def _check(fits: bool, text: str) -> None:
    if not fits:
        raise _MeshError(text)


class Mesh:
    """Devices in a grid.

    Args:
        device_ids: numbers of the devices, flat (list or numpy array): each device of the run once.
        mesh_shape: size of each axis of the grid; their product is the number of devices.
        axis_names: a name for each axis, or None.

    Raises ValueError, which is an AssertionError as well, if these do not fit, or for devices that do not exist.
    """

    def __init__(self, device_ids, mesh_shape: Sequence[int], axis_names: Sequence[str] | None = None):
        self.device_ids = np.array(device_ids).reshape(-1)
        self.mesh_shape = tuple(int(size) for size in mesh_shape)
        self.axis_names = None if axis_names is None else tuple(axis_names)
        self._check_devices()
        if self.axis_names is not None:
            names, axes = len(self.axis_names), len(self.mesh_shape)
            _check(names == axes, f"Number of axis names ({names}) must match mesh dimensions ({axes})")
            _check(len(set(self.axis_names)) == names, f"Axis names must be unique, got {self.axis_names}")

    def _check_devices(self) -> None:
        ids, number = self.device_ids.tolist(), f"Number of device IDs ({len(self.device_ids)})"
        size, every = math.prod(self.mesh_shape), runtime.global_runtime_device_count()
        _check(len(ids) == every, f"{number} must match the global number of devices ({every})")
        _check(len(ids) == size, f"{number} must match mesh size ({size})")
        _check(len(set(ids)) == size, f"Device IDs must be unique, got {ids}")
        _check(all(0 <= each < size for each in ids), f"Device IDs must be less than mesh size ({size}), got {ids}")

    def __str__(self) -> str:
        return str(
            {"device_ids": self.device_ids.tolist(), "mesh_shape": self.mesh_shape, "axis_names": self.axis_names}
        )

    @classmethod
    def from_str(cls, mesh_str: str) -> "Mesh | None":
        """The mesh from a text of str(). None for any other text."""
        try:
            return cls(**ast.literal_eval(mesh_str))
        except (SyntaxError, TypeError, ValueError):
            return None

    def size(self) -> int:
        """The number of devices."""
        return len(self.device_ids)

    def shape(self) -> OrderedDict:
        """Size of each axis by its name (by its number, without names)."""
        return OrderedDict(zip(self.axis_names or range(len(self.mesh_shape)), self.mesh_shape))

    def get_axis_name_idx(self, name: str) -> int | None:
        """Number of the axis of that name. None if there is none."""
        return self.axis_names.index(name) if self.axis_names and name in self.axis_names else None

    def get_logical_mesh(self) -> np.ndarray:
        """The devices' numbers, in the shape of the mesh."""
        return self.device_ids.reshape(self.mesh_shape)

    def get_op_sharding(self, partition_spec: PartitionSpec) -> OpSharding:
        """The sharding of a tensor with its dims spread by partition_spec.

        Raises ValueError for an axis that does not exist or occurs twice.
        """
        axes = [self._axes(entry) for entry in partition_spec]
        used = [axis for of_dim in axes for axis in of_dim]
        if len(set(used)) != len(used):
            raise ValueError(f"an axis of the mesh occurs twice in partition_spec {partition_spec}")
        others = [axis for axis in range(len(self.mesh_shape)) if axis not in used]
        tiles = [math.prod(self.mesh_shape[axis] for axis in of_dim) for of_dim in axes]
        return OpSharding(self.get_logical_mesh().transpose(used + others).reshape(*tiles, -1))

    get_op_sharding_v2 = get_op_sharding

    def numbers_of(self, partition_spec: PartitionSpec) -> PartitionSpec:
        """The same with axes by their numbers."""
        return tuple(
            tuple(self._axes(entry)) if isinstance(entry, tuple) else next(iter(self._axes(entry)), None)
            for entry in partition_spec
        )

    def _axes(self, entry) -> list[int]:
        """The numbers of the axes that an entry of a partition_spec names."""
        named = entry if isinstance(entry, tuple) else () if entry is None else (entry,)
        return [self._axis(axis) for axis in named]

    def _axis(self, axis) -> int:
        number = self.get_axis_name_idx(axis) if isinstance(axis, str) else axis
        if not isinstance(number, int) or not 0 <= number < len(self.mesh_shape):
            raise ValueError(f"axis {axis!r} is none of the mesh's: {list(self.shape())}")
        return number


def _slices() -> list[list[int]]:
    """The devices' numbers by their hardware's slice ("slice_index"); without it all are in one.

    A slice's devices are in the order of their places ("coords"), the first coordinate the fastest.
    """
    by_index: dict[int, list[tuple]] = {}
    for position, attributes in enumerate(runtime.global_runtime_device_attributes()):
        number = attributes.get("name", "").rpartition(":")[2]
        key = (tuple(attributes.get("coords", ()))[::-1], int(number) if number.isdigit() else position)
        by_index.setdefault(attributes.get("slice_index", 0), []).append(key)
    return [[number for _, number in sorted(by_index[index])] for index in sorted(by_index)]


class HybridMesh(Mesh):
    """A mesh over slices: groups of devices with a fast network within each (ICI) and a slower one between them (DCN).

    Args:
        ici_mesh_shape: the axes within a slice; their product is its number of devices.
        dcn_mesh_shape: the same number of axes between slices; their product is the number of slices. By default all 1.
        axis_names: as for Mesh.

    Each axis of the mesh combines an axis between slices with one within them: its size is the product of the two. A
    slice's devices are in order of their places, so that neighbours along the last axis are neighbours in the hardware
    where the shapes fit; without places in order of their numbers. The embedded engine's devices are one slice. Raises
    ValueError for shapes that do not fit the devices.
    """

    def __init__(
        self,
        *,
        ici_mesh_shape: Sequence[int],
        dcn_mesh_shape: Sequence[int] | None = None,
        axis_names: Sequence[str] | None = None,
    ):
        inner = self.ici_mesh_shape = tuple(ici_mesh_shape)
        outer = self.dcn_mesh_shape = (1,) * len(inner) if dcn_mesh_shape is None else tuple(dcn_mesh_shape)
        if len(outer) != len(inner):
            raise ValueError(f"dcn_mesh_shape {outer} has not as many axes as ici_mesh_shape {inner}")
        slices = _slices()
        if math.prod(outer) != len(slices):
            raise ValueError(f"dcn_mesh_shape {outer} does not hold the {len(slices)} slices that the devices are in")
        sizes = [len(each) for each in slices]
        if any(math.prod(inner) != size for size in sizes):
            raise ValueError(f"ici_mesh_shape {inner} does not hold the devices of each slice, which are {sizes}")
        pairs = [axis for dim in range(len(inner)) for axis in (dim, len(inner) + dim)]
        device_ids = np.array(slices).reshape(*outer, *inner).transpose(pairs)
        super().__init__(device_ids, [a * b for a, b in zip(outer, inner)], axis_names)


def set_global_mesh(mesh: Mesh) -> None:
    """Sets the mesh that get_global_mesh() returns."""
    global _global_mesh
    _global_mesh = mesh


def get_global_mesh() -> Mesh | None:
    """The mesh of set_global_mesh(). None if it was not called."""
    return _global_mesh


def get_1d_mesh(axis_name: str | None = None) -> Mesh:
    """All devices along one axis."""
    count = runtime.global_runtime_device_count()
    return Mesh(range(count), (count,), None if axis_name is None else (axis_name,))
