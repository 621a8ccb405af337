"""torch_xla: the lazy device `xla` for PyTorch. After `import torch_xla`, `device="xla"` works everywhere."""

import importlib
import os
import sys

import torch

import torch_xla_autoload

from . import _gone, _library, _torch_release
from .version import __version__

with torch_xla_autoload.keep_first_error():
    _XLAC = _library.load()
    _torch_release.warn_of_unknown()
    from . import _setup as _setup

from ._api import (
    compile,
    device,
    device_count,
    devices,
    launch,
    manual_seed,
    real_devices,
    set_custom_compile_options,
    step,
    sync,
)
from ._auto_sync import auto_sync, set_auto_sync
from .debug import metrics as _metrics  # noqa: F401

# For CMake's -DCMAKE_PREFIX_PATH: where find_package(torch_xla) finds this package, and PyTorch (docs/cpp.md).
cmake_prefix_path = f"{os.path.dirname(os.path.abspath(__file__))}/share/cmake;{torch.utils.cmake_prefix_path}"

__all__ = [
    "_XLAC",
    "__version__",
    "auto_sync",
    "cmake_prefix_path",
    "compile",
    "device",
    "device_count",
    "devices",
    "launch",
    "manual_seed",
    "real_devices",
    "set_auto_sync",
    "set_custom_compile_options",
    "step",
    "sync",
]

# Imported when a program first names them: `import torch` loads this module and must stay quick.
_LAZY_MODULES = ("amp", "backends", "distributed", "experimental", "runtime", "stablehlo", "test", "utils")
_LAZY_NAMES = {"save_as_stablehlo": "stablehlo", "save_torch_model_as_stablehlo": "stablehlo"}


def __getattr__(name: str):
    if name in ("core", "xm"):
        classic = importlib.import_module(f"{__name__}.core.xla_model")
        return classic if name == "xm" else sys.modules[f"{__name__}.core"]
    if name in _LAZY_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _find_binding(name: str):
    """Python names of _XLAC come with the classic API, which sets them there."""
    importlib.import_module(f"{__name__}.core.xla_model")
    if name in vars(_XLAC):
        return vars(_XLAC)[name]
    raise AttributeError(f"module {_XLAC.__name__!r} has no attribute {name!r}")


_XLAC.__getattr__ = _find_binding
_gone.set_up()
