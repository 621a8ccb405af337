"""The sync that nobody has to write: after `optimizer.step()` on xla parameters, what is pending runs."""

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import _XLAC

_enabled: bool | None = None  # None: not asked for yet


def set_auto_sync(enabled: bool) -> None:
    """Switches the automatic sync after `optimizer.step()` on or off. XLA_AUTO_SYNC=0 starts with it off."""
    global _enabled
    _enabled = bool(enabled)


def auto_sync() -> bool:
    """True if `optimizer.step()` syncs by itself.

    Raises ValueError if XLA_AUTO_SYNC is not understood.
    """
    global _enabled
    if _enabled is None:
        _enabled = _XLAC._env_flag("XLA_AUTO_SYNC", True)
    return _enabled


def _is_on_xla(optimizer: torch.optim.Optimizer) -> bool:
    """Looks at the first parameter of each group: a group is rarely split, and a missed sync only delays."""
    return any(group["params"] and group["params"][0].device.type == "xla" for group in optimizer.param_groups)


def _after_step(optimizer: torch.optim.Optimizer, args, kwargs) -> None:
    if _is_on_xla(optimizer) and auto_sync():
        _XLAC._xla_sync(False)


def install() -> None:
    """Registers the hook for all optimizers. Called once, when torch_xla is imported."""
    register_optimizer_step_post_hook(_after_step)
