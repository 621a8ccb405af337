"""The sharding of a tensor over devices, in XLA's terms (OpSharding of xla_data.proto)."""

import enum
import math
from collections.abc import Sequence
from types import EllipsisType
from typing import NamedTuple

import numpy as np

PartitionSpec = tuple[int | str | tuple[int | str, ...] | None, ...]


class ShardingType(enum.IntEnum):
    """The kind of a sharding."""

    REPLICATED = 0
    MAXIMAL = 1
    TUPLE = 2
    TILED = 3
    MANUAL = 4
    PARTIAL = 5
    UNKNOWN = 6


class Place(NamedTuple):
    """A device's part of a tensor."""

    indices: list[slice] | EllipsisType  # of each dim; all of the tensor
    replica_id: int  # its number among the devices with the same part


class OpSharding:
    """A sharding: a tensor cut into tiles, each on one device or on several.

    Args:
        tile_assignment: the devices' numbers; for each dim of the tensor the number of its tiles, and last the number
            of devices that hold the same tile.
    """

    def __init__(self, tile_assignment: np.ndarray):
        self._devices = tile_assignment
        self.tiles: tuple[int, ...] = tile_assignment.shape[:-1]
        replicas = tile_assignment.shape[-1]
        if math.prod(self.tiles) == 1:
            self.type = ShardingType.REPLICATED
        else:
            self.type = ShardingType.TILED if replicas == 1 else ShardingType.PARTIAL

    def __str__(self) -> str:
        """XLA's text for it."""
        if self.type is ShardingType.MANUAL:
            return "{manual}"
        if self.type is ShardingType.REPLICATED:
            return "{replicated}"
        is_partial = self.type is ShardingType.PARTIAL
        sizes = ",".join(map(str, self._devices.shape if is_partial else self.tiles))
        devices = ",".join(map(str, self.devices))
        return f"{{devices=[{sizes}]{devices}{' last_tile_dim_replicate' if is_partial else ''}}}"

    def __eq__(self, other) -> bool:
        return isinstance(other, OpSharding) and str(self) == str(other) and self.device_count() == other.device_count()

    def __hash__(self) -> int:
        return hash(str(self))

    @classmethod
    def manual(cls, devices: Sequence[int], rank: int) -> "OpSharding":
        """Of a tensor of that rank that is a part of its own on each device."""
        sharding = cls(np.array(devices).reshape(*[1] * rank, -1))
        sharding.type = ShardingType.MANUAL
        return sharding

    @property
    def devices(self) -> list[int]:
        """The devices' numbers, tile by tile."""
        return self._devices.reshape(-1).tolist()

    def device_count(self) -> int:
        """The number of devices."""
        return self._devices.size

    def tile_shape(self, shape: Sequence[int]) -> list[int]:
        """Sizes of a tile of a tensor with these sizes; the last tiles are padded to it."""
        return [-(-size // tiles) for size, tiles in zip(shape, self.tiles)]

    def places(self, shape: Sequence[int]) -> list[Place]:
        """Each device's part of a tensor with these sizes, without padding."""
        if self.type is ShardingType.REPLICATED:
            return [Place(..., device) for device in range(self.device_count())]
        found, sizes = {}, self.tile_shape(shape)
        for *tile, replica in np.ndindex(self._devices.shape):
            found[int(self._devices[(*tile, replica)])] = Place(
                [
                    slice(min(number * size, whole), min((number + 1) * size, whole), 1)
                    for number, size, whole in zip(tile, sizes, shape)
                ],
                replica,
            )
        return [found[device] for device in sorted(found)]
