"""This process's place in its run, and its hardware.

A run is one replica, number 0, unless `xmp.spawn` or torchrun have started its processes or `DataParallel` its threads.
A process without replicas counts as one, with any number of devices (see the device counts).
"""

import contextlib
import os
import sys

import torch

from . import _api, _device_module, _world, _XLAC

runtime = sys.modules[__name__]  # the original's module has itself by this name
_HARDWARE = ("CPU", "CUDA", "TPU")  # these values of PJRT_DEVICE are also the names of their hardware


def device_type() -> str | None:
    """The kind of hardware that runs the programs: "CPU", "CUDA", "TPU".

    Before the first use of the device this is PJRT_DEVICE's value, and the call starts nothing. None if PJRT_DEVICE is
    not set and PJRT_SELECT_DEFAULT_DEVICE is off.
    """
    if not _XLAC._xla_runtime_is_initialized():
        if not _XLAC._env_is_set("PJRT_DEVICE") and not _XLAC._env_flag("PJRT_SELECT_DEFAULT_DEVICE"):
            return None
        chosen = _XLAC._env_text("PJRT_DEVICE")
        if chosen in _HARDWARE:
            return chosen
    return _XLAC._xla_hardware()


def set_device_type(pjrt_device: str) -> None:
    """Sets PJRT_DEVICE: "CPU", "CUDA", "TPU", "LIBRARY" or the name of a plugin.

    An unknown name is an error at the first use of the device: until then a plugin may be registered under it. Raises
    RuntimeError if the device was already used as another one.
    """
    chosen = _XLAC._xla_chosen_device()
    if _XLAC._xla_runtime_is_initialized() and chosen not in ("", pjrt_device):
        raise RuntimeError(
            f"the device runs as {chosen} already: call set_device_type({pjrt_device!r}) before its first use"
        )
    os.environ["PJRT_DEVICE"] = pjrt_device


def using_pjrt() -> bool:
    """True; kept for old programs."""
    return True


def is_bf16_supported() -> bool:
    """True."""
    return True


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """The n-th device, by default the current one.

    Args:
        n: index of the device.
        devkind: kind of hardware; only that of device_type() exists.

    Raises IndexError if there is no such device.
    """
    if devkind not in (None, device_type()):
        raise RuntimeError(f"there is no device of kind {devkind!r}; expected {device_type()!r}")
    return _api.device(n)


def world_size() -> int:
    """Replicas of the run."""
    return _world.current().size


def global_ordinal() -> int:
    """This thread's number among the replicas of the run."""
    return _world.current().rank


def local_ordinal() -> int:
    """This thread's number among the replicas on this machine."""
    return _world.current().local_rank


def local_process_count() -> int:
    """Processes of the run on this machine."""
    return _world.process().local_size


def process_count() -> int:
    """Processes of the run."""
    return _world.process().size


def process_index() -> int:
    """This process's number."""
    return _world.process().rank


def host_index() -> int:
    """This machine's number."""
    return process_index() // local_process_count()


def addressable_device_count() -> int:
    """Devices of this process that tensors can be on: one in SPMD mode."""
    return _api.device_count()


def local_device_count() -> int:
    """Such devices of the run's processes on this machine."""
    return local_process_count() * addressable_device_count()


def global_device_count() -> int:
    """Such devices of the run."""
    return process_count() * addressable_device_count()


def addressable_runtime_device_count() -> int:
    """Devices of this process."""
    return _XLAC._xla_num_devices()


def global_runtime_device_count() -> int:
    """Devices of the run: the size of a torch_xla.distributed.spmd.Mesh."""
    return process_count() * addressable_runtime_device_count()


def runtime_device_attributes(device: str) -> dict:
    """Attributes of the hardware behind the device: "name", "kind" and the plugin vendor's own.

    Raises ValueError for a device that is not xla, RuntimeError for a device that does not exist.
    """
    return _XLAC._xla_device_attributes(_device_module._existing(device))


def global_runtime_device_attributes() -> list[dict]:
    """Attributes of all devices of the run; all processes have the same."""
    own = [runtime_device_attributes(f"xla:{index}") for index in range(addressable_runtime_device_count())]
    return own * process_count()


def get_master_ip() -> str:
    """Address of the run's first machine."""
    return _XLAC._env_text("MASTER_ADDR") if process_count() > 1 else "127.0.0.1"


def use_spmd(auto: bool = False) -> None:
    """Sets XLA_USE_SPMD: the program sees the run's devices as one, and torch_xla.distributed.spmd spreads tensors over
    them.

    Args:
        auto: accepted for the original's sake: the compiler decides on unmarked tensors anyway.
    """
    del auto
    os.environ["XLA_USE_SPMD"] = "1"
    if _XLAC._xla_runtime_is_initialized() and process_count() == 1:
        with contextlib.suppress(NotImplementedError):  # a mesh of several devices raises it
            _XLAC._run_over_all_devices()


is_spmd = _api.is_spmd


def initialize_cache(path: str, readonly: bool = False) -> None:
    """From now on keeps compiled programs in the folder `path` and finds them there, also in later processes.

    Programs compiled earlier are not written.

    Args:
        path: created if missing; it must be the user's alone. `~` is the user's home. Empty for no folder.
        readonly: nothing is written there, so many processes may read one process's programs.
    """
    path = os.fspath(path)
    os.environ["XLA_PERSISTENT_CACHE_PATH"] = path and os.path.abspath(os.path.expanduser(path))
    os.environ["XLA_PERSISTENT_CACHE_READ_ONLY"] = "1" if readonly else "0"
    _XLAC._reopen_caches()


def clear_computation_cache() -> None:
    """Forgets the compiled programs in memory: later programs are compiled again, or read from disk."""
    _XLAC._clear_computation_cache()


def get_num_cached_compilation_graph() -> int:
    """Programs so far: compiled, planned again for other sizes, and found on disk."""
    return _api.count_programs()
