"""Registers the device with PyTorch when torch_xla is imported: its name, `torch.xla`, methods.

Programs that do not name the device stay unchanged. Functions for tensors come with the first tensor (_first_use.py);
functions that PyTorch finds by the device's name, or that programs import, are here.
"""

import atexit
import functools
import importlib
import os
import sys

import torch
from torch._functorch._aot_autograd.utils import register_graphsafe_rng_device_type
from torch.utils import backend_registration

from . import (
    _auto_sync,
    _default_backend,
    _device_mesh,
    _device_module,
    _dynamo,
    _late_modules,
    _legacy_types,
    _peers,
    _profiles,
    _replica_copies,
    _serialization,
    _storages,
    _world,
    _XLAC,
)
from .experimental import plugins as _plugins  # noqa: F401 (tells the engine where plugins are)
from .utils import dlpack as _dlpack

NAME = "xla"


def _is_xla(self: torch.Tensor) -> bool:
    """True if the tensor is on the device `xla`."""
    if torch.overrides.has_torch_function_unary(self):
        return torch.overrides.handle_torch_function(torch.Tensor.is_xla.__get__, (self,), self)
    return self.device.type == NAME


def _to_xla(self: torch.Tensor, device=None, non_blocking: bool = False, **kwargs) -> torch.Tensor:
    """Returns the tensor on the device `xla`: itself if it is there, else a copy of the same shape and dtype."""
    if torch.overrides.has_torch_function_unary(self):
        return torch.overrides.handle_torch_function(
            _to_xla, (self,), self, device=device, non_blocking=non_blocking, **kwargs
        )
    index = _device_module._existing(device)
    return self.to(device=torch.device(NAME, index), non_blocking=non_blocking, **kwargs)


def _add_methods() -> None:
    """As torch.utils.generate_methods_for_privateuse1_backend, which refuses because `Tensor.is_xla` exists."""
    torch.Tensor.is_xla = property(_is_xla)
    torch.Tensor.xla = _to_xla
    backend_registration._generate_module_methods_for_privateuse1_backend(NAME)
    backend_registration._generate_packed_sequence_methods_for_privateuse1_backend(NAME)
    backend_registration._generate_storage_methods_for_privateuse1_backend(NAME)


def _point_deprecated_autocast_functions_here() -> None:
    """PyTorch's own functions ask its former device of that name and would report autocast as off."""
    torch.is_autocast_xla_enabled = functools.partial(torch.is_autocast_enabled, NAME)
    torch.set_autocast_xla_enabled = functools.partial(torch.set_autocast_enabled, NAME)
    torch.get_autocast_xla_dtype = functools.partial(torch.get_autocast_dtype, NAME)
    torch.set_autocast_xla_dtype = functools.partial(torch.set_autocast_dtype, NAME)


def finish() -> None:
    """Runs collectives that others wait for, then waits for queued runs and sends, so that their errors are known.

    A process that ends by an exception cancels them. Does nothing if the device was not used.
    """
    if not _XLAC._xla_runtime_is_initialized() and not _peers.has_joined():
        return
    is_failing = _peers.is_failing()
    are_waiting = not is_failing and _peers.has_peers() and not _XLAC._in_bad_fork()
    if are_waiting:
        _world.run_collectives()
    _XLAC._xla_finish(is_failing)
    try:
        if are_waiting:
            _world.finish_all_sends()
    finally:
        _peers.end()


def _admit_to_flex_attention(module) -> None:
    """torch.nn.attention.flex_attention lists the devices that it takes. Its operations are plain ones."""
    check = module._validate_device

    @functools.wraps(check)
    def check_others(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != NAME:
            check(query, key, value)

    module._validate_device = check_others


def _register_with_dynamo(module) -> None:
    module.register_interface_for_device(NAME, importlib.import_module("torch_xla._dynamo_interface").XlaInterface)


def _keep_untraced(rules) -> None:
    """Keeps torch.compile from tracing these functions: it knows PyTorch's own in their place."""
    for module in (_serialization, _auto_sync, _storages):
        rules.add(module.__name__)


def register() -> None:
    """Called once, when torch_xla is imported."""
    _XLAC._add_torch_folder(os.path.dirname(os.path.abspath(__file__)))
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _device_module)
    for name in ("_utils", "amp", "memory", "random", "streams"):  # import finds them by the name of PyTorch, too
        sys.modules[f"torch.{NAME}.{name}"] = getattr(_device_module, name)
    register_graphsafe_rng_device_type(NAME)  # torch.compile repeats a draw by setting this generator's state
    _add_methods()
    _legacy_types.add_types(_device_module)
    _serialization.install_readers()
    _dlpack._install_functions()
    _default_backend.install()
    _device_mesh.install()
    _dynamo.install()
    _replica_copies.install()
    _point_deprecated_autocast_functions_here()
    _profiles.install()
    _late_modules.when_imported("torch.nn.attention.flex_attention", _admit_to_flex_attention)
    _late_modules.when_imported("torch._dynamo.device_interface", _register_with_dynamo)
    _late_modules.when_imported("torch._dynamo.trace_rules", _keep_untraced)
    atexit.register(finish)


register()
