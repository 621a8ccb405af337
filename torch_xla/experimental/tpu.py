"""Old name of torch_xla._internal.tpu."""

from .._internal.tpu import get_tpu_env, num_available_chips, num_available_devices, version

__all__ = ["get_tpu_env", "num_available_chips", "num_available_devices", "version"]
