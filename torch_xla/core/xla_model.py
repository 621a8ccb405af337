"""The classic API (`xm`): devices, steps, random state, saving, progress."""

import contextlib
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypedDict

import torch

from .. import _api, _auto_sync, _closures, _device_module, _files, _XLAC
from .. import runtime as _runtime
from ..runtime import xla_device
from . import _bindings as _bindings
from . import _switches as _switches
from ._collectives import (  # noqa: F401 (part of this module for its users)
    all_gather,
    all_gather_bucketized,
    all_reduce,
    all_reduce_bucketized_gradients,
    all_to_all,
    broadcast_master_param,
    collective_broadcast,
    collective_permute,
    recv,
    REDUCE_AND,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_MUL,
    REDUCE_OR,
    reduce_scatter,
    reduce_scatter_bucketized,
    REDUCE_SUM,
    send,
)
from ._data import (  # noqa: F401
    _maybe_convert_to_cpu,
    check_view_sharing,
    send_cpu_data_to_device,
    ToXlaTensorArena,
)
from ._meetings import (  # noqa: F401
    do_on_ordinals,
    mesh_reduce,
    rendezvous,
    set_replication,
    xla_rendezvous,
)
from ._operators import XLA_LIB as XLA_LIB


# ---- Devices ----
def get_xla_supported_devices(max_devices: int | str | None = None, devkind: str | int | None = None) -> list[str]:
    """Names of the devices, as `["xla:0"]`: `max_devices` at most; none if there is none of the kind `devkind`.

    Both orders of the arguments work: the original's first versions take `devkind` first.
    """
    if isinstance(max_devices, str) or isinstance(devkind, int):
        max_devices, devkind = devkind, max_devices
    if devkind is not None and devkind != _runtime.device_type():
        return []
    return [str(device) for device in _api.devices()[:max_devices]]


def xla_real_devices(devices: Sequence | None = None) -> list[str]:
    """The hardware behind `devices` (strings or torch.device; by default all), as `["CPU:0"]`."""
    real = _api.real_devices()
    if devices is None:
        return real
    return [real[_device_module._existing(device)] for device in devices]


def xla_replication_devices(local_devices: Sequence | None = None) -> list[str]:
    """The hardware behind `local_devices`, by default all, for set_replication()."""
    return xla_real_devices(local_devices)


def xla_device_hw(device) -> str:
    """Kind of hardware behind `device` (string or torch.device): "CPU"."""
    device = torch.device(device)
    if device.type == "cpu":
        return "CPU"
    _device_module._existing(device)
    return _runtime.device_type()


def xla_device_kind(device=None) -> str:
    """Model of the hardware: "cpu"."""
    return xla_device_hw(xla_device() if device is None else device).lower()


def _name_of(device) -> str:
    """The name of the device (string, torch.device or None, which is the current one)."""
    return str(_api.device() if device is None else device)


def parse_xla_device(device: str) -> tuple[str, int] | None:
    """("TPU", 0) of "TPU:0", as real_devices() names hardware; None of another text."""
    match = re.fullmatch(r"([A-Z]+):(\d+)", device)
    return (match[1], int(match[2])) if match else None


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    """True if the tensor is on the device `xla`."""
    return tensor.device.type == "xla"


class MemoryInfo(TypedDict):
    """Memory of a device, in bytes: in use, in all, and the peak."""

    bytes_used: int
    bytes_limit: int
    peak_bytes_used: int


def get_memory_info(device=None) -> MemoryInfo:
    """The memory of the device, by default of the current one."""
    return _XLAC._xla_memory_info(_name_of(device))


# ---- This process among others ----
def xrt_world_size(defval: int = 1) -> int:
    """The number of replicas in the run."""
    return _runtime.world_size()


def get_ordinal(defval: int = 0) -> int:
    """This thread's number among them."""
    return _runtime.global_ordinal()


def get_local_ordinal(defval: int = 0) -> int:
    """This thread's number on this machine."""
    return _runtime.local_ordinal()


def is_master_ordinal(local: bool = True) -> bool:
    """True in the process that prints and saves."""
    return (get_local_ordinal() if local else get_ordinal()) == 0


def master_print(*args, fd=None, local: bool = False, flush: bool = False) -> None:
    """print() in the master process only; `fd` is the stream, by default stdout."""
    if is_master_ordinal(local=local):
        print(*args, file=sys.stdout if fd is None else fd, flush=flush)


# ---- Steps ----
def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """Runs the pending operations of the current device, then the step closures. The same as torch_xla.sync()."""
    _api.sync(wait, reset_scope)


def wait_device_ops(devices: Sequence = ()) -> None:
    """Waits until all queued runs of `devices` have ended, by default of all. Pending operations stay pending."""
    _XLAC._xla_wait_device_ops([str(device) for device in devices])


def unlazy(tensors: Sequence[torch.Tensor]) -> None:
    """Computes the tensors now, and everything else that is pending on their devices."""
    for device in sorted({tensor.device.index for tensor in tensors if is_xla_tensor(tensor)}):
        _XLAC._xla_sync(device, True)


def add_step_closure(closure: Callable, args: Sequence = (), run_async: bool = False) -> None:
    """Calls `closure(*args)` after the next step, when the tensors in `args` have been computed.

    It belongs to the current device: a sync by a thread with another current device leaves it.

    Args:
        run_async: on another thread, one for each device, in the order of the calls; an exception is raised by a later
            sync. If 100 have not ended, the sync waits for the oldest.
    """
    _closures.add(closure, args, run_async)


def reduce_gradients(optimizer: torch.optim.Optimizer, groups: list | None = None, pin_layout: bool = True) -> None:
    """Averages the gradients over the replicas, in few transfers; after xr.use_spmd() it leaves them as they are.

    Args:
        groups: numbers of the replicas of each group; None is one group of all.
        pin_layout: accepted for the original's sake.
    """
    size = len(groups[0]) if groups else _runtime.world_size()
    if size > 1 and not _runtime.is_spmd():
        all_reduce(REDUCE_SUM, _fetch_gradients(optimizer), 1 / size, groups)


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    barrier: bool = False,
    optimizer_args: dict | None = None,
    groups: list | None = None,
    pin_layout: bool = True,
):
    """Averages the gradients over the replicas of the run and calls `optimizer.step(**optimizer_args)`.

    Args:
        barrier: also run the pending operations of the parameters' devices now. A parallel loader does that by itself.
        groups, pin_layout: as for reduce_gradients.

    Returns the result of `optimizer.step`.
    """
    reduce_gradients(optimizer, groups=groups, pin_layout=pin_layout)
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        devices = sorted(_auto_sync._find_devices(optimizer, None))
        names = [f"xla:{device}" for device in devices] or [""]
        _api.sync_devices(names, wait=False, cause=_api.SyncCause.OPTIMIZER)
    return loss


def _fetch_gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The gradients of all parameters that have one."""
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


# ---- Programs ----
def get_stablehlo(tensors: Sequence[torch.Tensor] | None = None) -> str:
    """StableHLO of the tensors' pending graph, by default of all on the current device: MLIR text, one function.

    Its arguments are the graph's values and numbers, its results the tensors. Nothing runs. Raises NotImplementedError
    for an operation that has no form in StableHLO, ValueError for a tensor on another device.
    """
    return _XLAC._get_stablehlo(list(tensors or ()))


def get_stablehlo_bytecode(tensors: Sequence[torch.Tensor] | None = None) -> bytes:
    """get_stablehlo() as bytes: the text in UTF-8. MLIR's readers of bytecode accept it."""
    return get_stablehlo(tensors).encode()


def optimization_barrier_(tensors: Sequence[torch.Tensor]) -> None:
    """Puts the tensors behind a barrier: their values stay, and are available when all are computed.

    Later computations from them are not merged with earlier ones or moved before them, so activations can be
    recomputed. Autograd does not see it. It copies tensors that are used on both sides.

    Raises ValueError for tensors that are not on the device `xla`, or not on the same.
    """
    _XLAC._xla_optimization_barrier_([getattr(t, "_own_part", t) for t in tensors])


# ---- Random numbers ----
def set_rng_state(seed: int, device=None) -> None:
    """Sets the device's seed, or a state that get_rng_state() returned."""
    mask = _device_module.random.SEED_MASK
    _XLAC._xla_set_rng_state(seed & mask, (seed >> 64) & mask, _name_of(device))


def get_rng_state(device=None) -> int:
    """The device's random state as one number, for set_rng_state(): the seed, if nothing was drawn since it was set."""
    seed, offset = _XLAC._xla_get_rng_state(_name_of(device))
    return offset << 64 | seed


@contextlib.contextmanager
def fork_rng(device=None, enabled: bool = True):
    """Context manager that restores the device's random state at its end."""
    device = _name_of(device)
    state = get_rng_state(device)
    try:
        yield
    finally:
        if enabled:
            set_rng_state(state, device)


# ---- Saving data ----
def save(data, file_or_path, master_only: bool = True, global_master: bool = False) -> None:
    """torch.save of `data` with its xla tensors moved to the CPU, so that it loads anywhere.

    A path keeps its old file until all is written; a file object is written at once.

    Args:
        master_only: only the master process writes.
        global_master: the master of the whole run, not of each machine.
    """
    cpu_data = _maybe_convert_to_cpu(data)
    if not master_only or is_master_ordinal(local=not global_master):
        _files.torch_save(cpu_data, file_or_path)


# ---- Progress ----
class RateTracker:
    """Items per second: `rate()` since the last call, smoothed; `global_rate()` since the beginning.

    Args:
        smooth_factor: weight of the older rate in rate(), from 0 to 1.
    """

    def __init__(self, smooth_factor: float | None = None):
        self._smooth_factor = 0.4 if smooth_factor is None else smooth_factor
        self._start = time.time()
        self._partial_time = self._start
        self._partial_count = 0.0
        self._partial_rate: float | None = None
        self._count = 0.0

    def add(self, count: float) -> None:
        """Counts `count` more items."""
        self._count += count

    def update(self, count: float) -> None:
        """Sets the number of items so far."""
        self._count = count

    def rate(self) -> float:
        """Items per second since the last call, mixed with the rate before it."""
        now = time.time()
        rate = (self._count - self._partial_count) / max(now - self._partial_time, 1e-9)
        if self._partial_rate is not None:
            rate = (1 - self._smooth_factor) * rate + self._smooth_factor * self._partial_rate
        self._partial_time, self._partial_count, self._partial_rate = now, self._count, rate
        return rate

    def global_rate(self) -> float:
        """Items per second since the beginning."""
        return self._count / max(time.time() - self._start, 1e-9)
