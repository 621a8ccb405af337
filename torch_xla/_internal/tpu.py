"""Answers to libraries' questions about TPU chips, before they choose a device for the user."""

from .. import _world, _XLAC


def num_available_chips() -> int:
    """Chips that a library may use by default: the devices if PJRT_DEVICE is set, else none.

    Libraries choose the device themselves if this is not 0. The installed package must not change a program that runs
    on the CPU, so the user must have named the device.
    """
    return _XLAC._xla_num_devices() if _XLAC._env_is_set("PJRT_DEVICE") else 0


num_available_devices = num_available_chips


def num_tpu_workers() -> int:
    """Machines of the run: one, as a process knows only itself before the start."""
    return 1


def num_logical_cores_per_chip() -> int:
    """Devices of a chip."""
    return 1


def num_expected_global_devices() -> int:
    """Replicas of a run that xmp.spawn() starts now."""
    return num_available_devices() * num_tpu_workers()


def num_local_processes() -> int:
    """Processes of the run on this machine."""
    return _world.process().local_size


def version() -> int:
    """The generation of the TPU. Raises RuntimeError if the device is not a TPU."""
    raise RuntimeError("this machine's device is no TPU")


def get_tpu_env() -> dict[str, str]:
    """The attributes that a TPU's machine reports. Raises RuntimeError if the device is not a TPU."""
    raise RuntimeError("this machine's device is no TPU")
