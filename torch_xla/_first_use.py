"""Hooks into PyTorch's code for tensors of the device.

The C++ library imports this module before it makes or takes the first tensor (src/python/device.cpp), so programs that
never use the device do not load it.
"""

from . import _auto_sync, _late_modules, _notebooks, _printing, _serialization, _torchao, _XLAC
from .utils import dlpack


def _install() -> None:
    _serialization.install()
    dlpack._install_methods()
    _printing.install()
    _auto_sync.install()
    if _XLAC._env_is_set("XLA_COMPILE_ONLY"):
        _XLAC._register_copies_of_meta()
    _torchao.install()
    _late_modules.when_imported("IPython.core.compilerop", _notebooks.follow)


_install()
