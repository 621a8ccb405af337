"""`torch.xla`: the functions that PyTorch and programs expect under a device's name (devices, streams, random state,
memory).
"""

import importlib

from . import _utils as _utils
from . import amp, memory, random, streams
from ._utils import _existing as _existing
from ._utils import _get_device_index as _get_device_index
from .amp import get_autocast_dtype, is_autocast_enabled, set_autocast_dtype, set_autocast_enabled
from .devices import _is_in_bad_fork as _is_in_bad_fork
from .devices import _lazy_init as _lazy_init
from .devices import (
    current_device,
    device,
    device_count,
    device_of,
    DeviceProperties,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    set_device,
)
from .memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    OutOfMemoryError,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)
from .random import _get_generator as _get_generator
from .random import (
    _get_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import (
    current_stream,
    default_stream,
    Event,
    set_stream,
    Stream,
    stream,
    StreamContext,
    synchronize,
)

__all__ = [
    "DeviceProperties",
    "Event",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_autocast_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_autocast_enabled",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "random",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_autocast_dtype",
    "set_autocast_enabled",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "streams",
    "synchronize",
]

_initialized = True  # torch.utils.checkpoint reads it: it keeps the random state of devices that are


# ---- Found on demand ----
def __getattr__(name: str):
    """Lazy names: the generators, as only the engine knows their number; inductor's names, as they import inductor."""
    if name == "default_generators":
        return _get_generators()
    if name in ("Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen"):
        return getattr(importlib.import_module("torch_xla._inductor"), name)
    raise AttributeError(f"module 'torch.xla' has no attribute {name!r}")
