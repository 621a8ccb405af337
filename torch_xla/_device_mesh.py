"""Gives meshes of the device xla process groups, as meshes of other devices have them.

PyTorch assumes that a device of that name has a sharding compiler (SPMD): it gives its meshes no groups, and calls
torch_xla.distributed.spmd to distribute tensors.
"""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator

from torch.distributed import is_available

_make: Callable | None = None  # DeviceMesh.__init__ as PyTorch has it


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


def _make_with_groups(mesh, *args, **kwargs) -> None:
    """DeviceMesh.__init__() for the device xla. Meets the other processes of the run."""
    importlib.import_module("torch_xla.distributed.xla_backend").join()
    _make(mesh, _OfGroups("xla"), *args, **kwargs)
    mesh._device_type = "xla"


def mesh_of_processes(ranks):
    """A DeviceMesh of the run's processes with process groups, also after xr.use_spmd(). All processes call it.

    Args:
        ranks: the processes' numbers, an array in the shape of the mesh.
    """
    from torch.distributed.device_mesh import DeviceMesh

    mesh = DeviceMesh.__new__(DeviceMesh)
    _make_with_groups(mesh, ranks)
    return mesh


def install() -> None:
    """Called once, when torch_xla is imported."""
    global _make
    if not is_available():
        return
    from torch.distributed import device_mesh
    from torch.distributed.device_mesh import DeviceMesh

    if resources := getattr(device_mesh, "_mesh_resources", None):  # finds the device's module by the name
        devices_per_host = resources.num_devices_per_host
        type(resources).num_devices_per_host = staticmethod(lambda name: devices_per_host(str(name)))
    _make = DeviceMesh.__init__

    @functools.wraps(_make)
    def make(self, device_type, *args, **kwargs):
        if device_type != "xla" or importlib.import_module("torch_xla.runtime").is_spmd():
            _make(self, device_type, *args, **kwargs)
        else:
            _make_with_groups(self, *args, **kwargs)

    DeviceMesh.__init__ = make
