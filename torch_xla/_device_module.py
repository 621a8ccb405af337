"""`torch.xla`: what PyTorch and programs look for under a device's name (devices, streams, random state, memory)."""

import contextlib
import importlib
import types
from dataclasses import dataclass

import torch

from . import _api, _XLAC


# ---- Devices ----
def is_available() -> bool:
    """True: the CPU engine is always there."""
    return True


_initialized = True  # torch.utils.checkpoint reads it: it keeps the random state of devices that are


def is_initialized() -> bool:
    """True: importing torch_xla initializes the device."""
    return True


def init() -> None:
    """Nothing is left to do; here for programs that call it."""


_lazy_init = init


def device_count() -> int:
    """How many devices this process has."""
    return _XLAC._xla_num_devices()


def current_device() -> int:
    """Index of this thread's device."""
    return _XLAC._xla_current_device()


def set_device(device) -> None:
    """Makes `device` (index, string or torch.device) this thread's device. Raises RuntimeError if it does not exist."""
    _XLAC._xla_set_current_device(_get_device_index(device))


def _get_device_index(device, optional: bool = True) -> int:
    """Index of `device`: None and a device without index are the current one. Raises ValueError for another type."""
    if isinstance(device, int):
        return device
    if device is None:
        if not optional:
            raise ValueError("a device is needed, as 'xla:0' or 0")
        return current_device()
    device = torch.device(device)
    if device.type != "xla":
        raise ValueError(f"expected an xla device, but got {device}")
    return current_device() if device.index is None else device.index


def _get_name(device) -> str:
    return f"xla:{_get_device_index(device)}"


_utils = types.SimpleNamespace(_get_device_index=_get_device_index)


class device:
    """Context manager that makes `device` the current one. None and negative indexes change nothing."""

    def __init__(self, device):
        self.idx = -1 if device is None else _get_device_index(device)
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = current_device()
        if self.idx >= 0:
            set_device(self.idx)

    def __exit__(self, *exc):
        set_device(self.prev_idx)
        return False


class device_of(device):
    """Context manager that makes the tensor's device the current one; nothing happens for tensors of other devices."""

    def __init__(self, tensor: torch.Tensor):
        super().__init__(tensor.device if tensor.device.type == "xla" else None)


@dataclass(frozen=True)
class DeviceProperties:
    """What get_device_properties() tells."""

    name: str
    total_memory: int  # bytes
    multi_processor_count: int  # threads that run programs


def get_device_properties(device=None) -> DeviceProperties:
    """Name, memory and threads of the device."""
    memory = _XLAC._xla_memory_info(_get_name(device))["bytes_limit"]
    return DeviceProperties(get_device_name(device), memory, torch.get_num_threads())


def get_device_name(device=None) -> str:
    """Hardware behind the device, as `CPU:0`."""
    return _XLAC._xla_device_attributes(_get_device_index(device))["name"]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that torch.autocast("xla") takes."""
    return [torch.bfloat16, torch.float16]


def is_autocast_enabled() -> bool:
    """Whether autocast is on for the device, on this thread."""
    return torch.is_autocast_enabled("xla")


def set_autocast_enabled(enabled: bool) -> None:
    """Turns autocast for the device on or off, on this thread."""
    torch.set_autocast_enabled("xla", enabled)


def get_autocast_dtype() -> torch.dtype:
    """What autocast computes in: bfloat16, unless set."""
    return torch.get_autocast_dtype("xla")


def set_autocast_dtype(dtype: torch.dtype) -> None:
    """Chooses what autocast computes in."""
    torch.set_autocast_dtype("xla", dtype)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True."""
    return True


def _is_in_bad_fork() -> bool:
    """True in a process forked from one that had used the device: nothing may run there."""
    return _XLAC._in_bad_fork()


# ---- Streams and events. All streams of a device run in one order ----
def synchronize(device=None) -> None:
    """Runs everything that is pending on the device and waits for it."""
    _XLAC._xla_sync(_get_device_index(device), True)


class Stream(torch.Stream):
    """A stream of the device `xla`."""

    def __new__(cls, device=None, priority: int = 0, **kwargs):
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device=torch.device("xla", _get_device_index(device)), priority=priority)


def Event(enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:
    """An event of the device `xla`. Recording it runs what is pending. (torch.Event refuses subclasses of itself.)"""
    return torch.Event(device="xla", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def current_stream(device=None) -> torch.Stream:
    """This thread's stream."""
    return torch.accelerator.current_stream(torch.device("xla", _get_device_index(device)))


def default_stream(device=None) -> torch.Stream:
    """The stream with id 0."""
    index = _get_device_index(device)
    return torch.Stream(stream_id=0, device_index=index, device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


def set_stream(stream: torch.Stream) -> None:
    """Makes `stream` this thread's stream."""
    torch.accelerator.set_stream(stream)


def stream(stream: torch.Stream | None):
    """Context manager that makes `stream` the current one. None changes nothing."""
    return contextlib.nullcontext() if stream is None else stream


StreamContext = stream


# ---- Random numbers ----
def manual_seed_all(seed: int) -> None:
    """Sets the seed of all devices. torch.manual_seed calls it."""
    _XLAC._xla_set_seed_of_all(int(seed) & _api.SEED_MASK)


def manual_seed(seed: int) -> None:
    """Sets the seed of the current device."""
    _XLAC._xla_set_rng_seed(int(seed) & _api.SEED_MASK)


def seed_all() -> None:
    """Takes a seed from the system for each device."""
    for generator in _get_generators():
        generator.seed()


def seed() -> None:
    """Takes a seed from the system for the current device."""
    _get_generator(None).seed()


def initial_seed() -> int:
    """The current device's seed."""
    return _get_generator(None).initial_seed()


def _get_generator(device) -> torch.Generator:
    """The default generator of the device."""
    return _XLAC._xla_default_generator(_get_device_index(device))


def _get_generators() -> tuple[torch.Generator, ...]:
    return tuple(_get_generator(index) for index in range(device_count()))


def get_rng_state(device="xla") -> torch.Tensor:
    """The random state as a uint8[16] tensor on the CPU."""
    return _get_generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device="xla") -> None:
    """Restores what get_rng_state() returned. Raises RuntimeError for a state of another size."""
    _get_generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The random states of all devices."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states) -> None:
    """Restores what get_rng_state_all() returned."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


# ---- Memory, in bytes ----
def memory_allocated(device=None) -> int:
    """Held by live tensors and queued runs."""
    return _XLAC._xla_memory_info(_get_name(device))["bytes_used"]


def max_memory_allocated(device=None) -> int:
    """The most that was ever held, or since reset_peak_memory_stats()."""
    return _XLAC._xla_memory_info(_get_name(device))["peak_bytes_used"]


def mem_get_info(device=None) -> tuple[int, int]:
    """(free, total)."""
    info = _XLAC._xla_memory_info(_get_name(device))
    return max(0, info["bytes_limit"] - info["bytes_used"]), info["bytes_limit"]


def memory_reserved(device=None) -> int:
    """Held by the device's pool, in use or not."""
    return torch.accelerator.memory_reserved(_get_device_index(device))


def max_memory_reserved(device=None) -> int:
    """The most that the pool ever held, or since reset_peak_memory_stats()."""
    return torch.accelerator.max_memory_reserved(_get_device_index(device))


def reset_peak_memory_stats(device=None) -> None:
    """Starts the `max_` figures again at what is held now. A plugin that counts its memory itself goes on with them."""
    torch.accelerator.reset_peak_memory_stats(_get_device_index(device))


reset_max_memory_allocated = reset_peak_memory_stats


def reset_accumulated_memory_stats(device=None) -> None:
    """Accepted for compatibility's sake: memory_stats() has no sums."""
    torch.accelerator.reset_accumulated_memory_stats(_get_device_index(device))


def memory_stats(device=None) -> dict:
    """The figures of torch.accelerator.memory_stats."""
    return torch.accelerator.memory_stats(_get_device_index(device))


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """One line about the memory in use."""
    info = _XLAC._xla_memory_info(_get_name(device))
    used, limit, peak = (info[key] / 2**20 for key in ("bytes_used", "bytes_limit", "peak_bytes_used"))
    return f"xla memory: {used:.1f} MiB in use, {peak:.1f} MiB at the peak, {limit:.1f} MiB in all"


def empty_cache() -> None:
    """Gives memory of all devices that no tensor or queued run holds back to the system.

    The next first touch of each page is dear.
    """
    _XLAC._xla_empty_cache()


# ---- Found when somebody asks ----
def __getattr__(name: str):
    """The generators, whose number only the engine knows; inductor's names, which would import inductor."""
    if name == "default_generators":
        return _get_generators()
    if name in ("Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen"):
        return getattr(importlib.import_module("torch_xla._inductor"), name)
    raise AttributeError(f"module 'torch.xla' has no attribute {name!r}")
