"""What PyTorch's own code does with tensors of the device, once there are some.

The C++ library imports this module before it makes or takes the first one (src/python/device.cpp), so that nothing of
it is in the way of programs that never use the device.
"""

from . import _auto_sync, _late_modules, _notebooks, _printing, _serialization
from .utils import dlpack


def _install() -> None:
    _serialization.install()
    dlpack._install_methods()
    _printing.install()
    _auto_sync.install()
    _late_modules.when_imported("IPython.core.compilerop", _notebooks.follow)


_install()
