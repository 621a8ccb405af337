"""Automatic work before and after `optimizer.step()` on xla parameters.

After it the pending operations run, except within torch_xla.compile() and torch_xla.step(), where a sync follows the
body. Before it an optimizer forgets the state of a failed first step, which has no values.
"""

import contextlib
import dataclasses
import threading
import weakref
from collections.abc import Iterator

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from . import _XLAC
from ._storages import StorageDictionary
from ._threads import OfThread

_enabled: bool | None = None  # None: not asked for yet
_parts: weakref.WeakSet = weakref.WeakSet()  # optimizers whose step is part of another's
_steppers: weakref.WeakSet = weakref.WeakSet()  # optimizers that have made a step
_stepped = StorageDictionary()  # their first parameters


@dataclasses.dataclass
class _Settings:
    """A thread's settings."""

    enabled: bool | None = None  # None: as the main thread
    held: tuple[int, ...] = ()  # the numbers of the devices that its regions sync at their ends, outermost first


_own = OfThread(_Settings)


def set_auto_sync(enabled: bool) -> None:
    """Switches the automatic sync after `optimizer.step()` on or off: for the calling thread; the main thread's setting
    also holds for threads that have not called it. XLA_AUTO_SYNC=0 starts with it off.
    """
    global _enabled
    _own.get().enabled = bool(enabled)
    if threading.current_thread() is threading.main_thread():
        _enabled = bool(enabled)


def auto_sync() -> bool:
    """True if `optimizer.step()` syncs by itself on the calling thread.

    Raises ValueError if XLA_AUTO_SYNC is not understood.
    """
    global _enabled
    enabled = _own.get().enabled
    if enabled is not None:
        return enabled
    if _enabled is None:
        _enabled = _XLAC._env_flag("XLA_AUTO_SYNC")
    return _enabled


def exempt(optimizer: torch.optim.Optimizer) -> None:
    """No sync after this optimizer's step: it is part of another optimizer's step, which syncs."""
    _parts.add(optimizer)


@contextlib.contextmanager
def held(device: int) -> Iterator[None]:
    """No sync of the device after optimizers' steps in its body, by this thread and those that work for it: a sync
    follows the body."""
    own = _own.get()
    before = own.held
    own.held = (*before, device)
    try:
        yield
    finally:
        own.held = before


def is_held(device: int | None) -> bool:
    """Whether a region of this thread syncs the device at its end."""
    return device in _own.get().held


def _find_devices(optimizer: torch.optim.Optimizer, end: int | None) -> set[int]:
    """Numbers of the devices of the first `end` parameters of each group."""
    params = (p for group in optimizer.param_groups for p in group["params"][:end])
    return {p.device.index for p in params if p.device.type == "xla"}


def _replaces_another(optimizer: torch.optim.Optimizer) -> bool:
    """At the first step of an optimizer: whether another one has stepped its first parameter."""
    if optimizer in _steppers:
        return False
    _steppers.add(optimizer)
    first = next((p for group in optimizer.param_groups for p in group["params"]), None)
    was_stepped = _stepped.get(first) is not None
    _stepped.set(first, True)
    return was_stepped


def _is_lost(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "xla" and _XLAC._is_lost_for_good(value)


def _before_step(optimizer: torch.optim.Optimizer, args, kwargs) -> None:
    """Notes that the step's numbers change: a scheduler sets the learning rate. Drops the state of a failed first step,
    so that the next step makes it again; in eager such a step raises before it makes state.
    """
    _XLAC._expect_number_changes(True)
    if not _XLAC._has_lost_values():
        return
    for parameter, state in list(optimizer.state.items()):
        if isinstance(state, dict) and any(map(_is_lost, state.values())):
            del optimizer.state[parameter]


def _after_step(optimizer: torch.optim.Optimizer, args, kwargs) -> None:
    _XLAC._expect_number_changes(False)  # a step that raises leaves it on until the next one ends
    # The first parameter of each group is enough: a group is rarely split over devices, and a missed sync only delays.
    devices = set() if optimizer in _parts else _find_devices(optimizer, 1)
    if not devices:
        return
    _XLAC._note_optimizer(type(optimizer).__name__, id(optimizer), _replaces_another(optimizer), min(devices))
    if not auto_sync():
        return
    if _XLAC._xla_num_devices() > 1:
        devices = _find_devices(optimizer, None)
    for device in sorted(devices.difference(_own.get().held)):
        _XLAC._xla_sync(device, cause=_XLAC.SyncCause.OPTIMIZER)


def install() -> None:
    """Registers the hooks for all optimizers. Called once, at the first use of the device."""
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)
