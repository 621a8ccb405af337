"""Old names of torch_xla.runtime and torch_xla.core.xla_model, for programs written for torch_xla 2.0."""

from ..core.xla_model import broadcast_master_param, rendezvous, xla_device
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
