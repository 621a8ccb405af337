"""Where pip puts the PJRT plugins that PJRT_DEVICE may name."""

import importlib.util
from pathlib import Path

from . import _XLAC

# By device: the modules whose folder has the plugin, the newest first, and its file.
_WHEELS = {
    "CUDA": [("jax_plugins.xla_cuda13", "xla_cuda_plugin.so"), ("jax_plugins.xla_cuda12", "xla_cuda_plugin.so")],
    "TPU": [("libtpu", "libtpu.so")],
}


def _find_file(module: str, file: str) -> Path | None:
    """Path of the file in the module's folder, without importing the module. None if there is no such module."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # its parent is missing
        return None
    folders = spec.submodule_search_locations if spec else None
    return Path(folders[0]) / file if folders else None


def offer_all() -> None:
    """Tells the engine where the plugins of the installed wheels are; none is loaded before PJRT_DEVICE asks for it."""
    for device, wheels in _WHEELS.items():
        for module, file in wheels:
            if (path := _find_file(module, file)) and path.is_file():
                _XLAC._xla_offer_plugin(device, str(path))
                break
