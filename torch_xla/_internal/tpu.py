"""What libraries ask about TPU chips, before they choose a device for the user."""

from .. import _world, _XLAC


def num_available_chips() -> int:
    """Chips that a library may take without being asked: the devices if PJRT_DEVICE is set, else none.

    Libraries choose the device by themselves where this is not 0. Being installed must not change what a program that
    runs on the CPU does, so the user has to have named the device.
    """
    return _XLAC._xla_num_devices() if _XLAC._env_is_set("PJRT_DEVICE") else 0


num_available_devices = num_available_chips


def num_tpu_workers() -> int:
    """Machines of the run: one, as far as a process knows before it is started."""
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
    """The generation of the TPU. Raises RuntimeError where the device is none."""
    raise RuntimeError("this machine's device is no TPU")


def get_tpu_env() -> dict[str, str]:
    """The attributes that a TPU's machine reports. Raises RuntimeError where the device is none."""
    raise RuntimeError("this machine's device is no TPU")
