"""Gives meshes of the device xla process groups, as meshes of other devices have them.

PyTorch assumes that a device of that name has a sharding compiler (SPMD): it gives its meshes no groups, and calls
torch_xla.distributed.spmd to distribute tensors.
"""

import contextlib
import functools
import importlib
from collections.abc import Iterator

from torch.distributed import is_available


class _OfGroups(str):
    """The device's name for PyTorch's comparisons with "xla": it compares as another name."""

    __slots__ = ()

    def __eq__(self, other) -> bool:
        return False

    def __ne__(self, other) -> bool:
        return True

    __hash__ = str.__hash__


@contextlib.contextmanager
def mesh_of_groups(mesh) -> Iterator[None]:
    """Within it PyTorch treats the DeviceMesh as one of a device without a special case."""
    name = mesh._device_type
    mesh._device_type = _OfGroups(name)
    try:
        yield
    finally:
        mesh._device_type = name


def install() -> None:
    """Called once, when torch_xla is imported."""
    if not is_available():
        return
    from torch.distributed import device_mesh
    from torch.distributed.device_mesh import DeviceMesh

    if resources := getattr(device_mesh, "_mesh_resources", None):  # finds the device's module by the name
        devices_per_host = resources.num_devices_per_host
        type(resources).num_devices_per_host = staticmethod(lambda name: devices_per_host(str(name)))
    make = DeviceMesh.__init__

    @functools.wraps(make)
    def make_with_groups(self, device_type, *args, **kwargs):
        if device_type != "xla" or importlib.import_module("torch_xla.runtime").is_spmd():
            make(self, device_type, *args, **kwargs)
            return
        importlib.import_module("torch_xla.distributed.xla_backend").join()
        make(self, _OfGroups(device_type), *args, **kwargs)
        self._device_type = device_type

    DeviceMesh.__init__ = make_with_groups
