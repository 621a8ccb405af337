"""torch_xla: the lazy device `xla` for PyTorch. After `import torch_xla`, `device="xla"` works everywhere."""


def _autoload() -> None:
    """Entry point of `torch.backends`: `import torch` calls it, and loading this module has done everything.

    It stands before `import torch` because torch calls it while this module is still being imported.
    """


import importlib  # noqa: E402
import os  # noqa: E402

import torch  # noqa: E402

from . import _library  # noqa: E402
from .version import __version__  # noqa: E402

_XLAC = _library.load()

from . import _setup as _setup  # noqa: E402
from ._api import (  # noqa: E402
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
from ._auto_sync import auto_sync, set_auto_sync  # noqa: E402
from .core import xla_model as xm  # noqa: E402, F401 (programs use torch_xla.core and torch_xla.xm after a bare import)
from .debug import metrics as _metrics  # noqa: E402, F401

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

# Imported when a program first names them: `import torch` loads this module, and is to stay quick.
_LAZY_MODULES = ("amp", "backends", "distributed", "experimental", "runtime", "stablehlo", "test", "utils")
_LAZY_NAMES = {"save_as_stablehlo": "stablehlo", "save_torch_model_as_stablehlo": "stablehlo"}


def __getattr__(name: str):
    if name in _LAZY_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
