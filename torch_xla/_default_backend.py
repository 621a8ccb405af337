"""The default backend of process groups: PyTorch takes only the accelerator's, and knows none for the device xla."""

import functools
import importlib

import torch
from torch.distributed import is_available


def install() -> None:
    """Makes it gloo for the CPU, as without this package, and `xla` for the device. Called once, at the import."""
    if not is_available():
        return
    from torch.distributed.distributed_c10d import Backend, BackendConfig

    make = BackendConfig.__init__

    @functools.wraps(make)
    def make_with_default(self, backend):
        if str(backend) == Backend.UNDEFINED and torch._C._get_accelerator().type == "xla":
            importlib.import_module("torch_xla.distributed.xla_backend")  # registers it
            backend = "cpu:gloo,xla:xla"
        make(self, backend)

    BackendConfig.__init__ = make_with_default
