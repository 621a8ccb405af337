"""Old names of torch_xla.runtime and torch_xla.core.xla_model, for programs written for torch_xla 2.0."""

from collections.abc import Sequence

from ..core import xla_model
from ..core.xla_model import broadcast_master_param, xla_device
from ..runtime import (
    addressable_device_count,
    device_type,
    global_device_count,
    global_ordinal,
    local_device_count,
    local_ordinal,
    local_process_count,
    process_count,
    process_index,
    set_device_type,
    using_pjrt,
    world_size,
)

__all__ = [
    "addressable_device_count",
    "broadcast_master_param",
    "device_type",
    "global_device_count",
    "global_ordinal",
    "local_device_count",
    "local_ordinal",
    "local_process_count",
    "process_count",
    "process_index",
    "rendezvous",
    "set_device_type",
    "using_pjrt",
    "world_size",
    "xla_device",
]


def rendezvous(tag: str, payload: bytes = b"", ordinals: Sequence[int] | None = None, *, mesh_port=None) -> list[bytes]:
    """xm.rendezvous() of the replicas `ordinals`, by default all. `mesh_port` is not used: the run has a store."""
    del mesh_port
    return xla_model.rendezvous(tag, payload, ordinals or [])
