"""`torch.xla.memory`: the devices' memory, in bytes."""

from typing import Any

import torch

from .. import _XLAC
from ._utils import _existing

OutOfMemoryError = torch.OutOfMemoryError  # raised if an allocation does not fit


def memory_allocated(device=None) -> int:
    """Bytes held by live tensors and queued runs."""
    return _XLAC._xla_memory_info(f"xla:{_existing(device)}")["bytes_used"]


def max_memory_allocated(device=None) -> int:
    """The peak of memory_allocated() since the start, or since reset_peak_memory_stats()."""
    return _XLAC._xla_memory_info(f"xla:{_existing(device)}")["peak_bytes_used"]


def mem_get_info(device=None) -> tuple[int, int]:
    """(free, total)."""
    return torch.accelerator.get_memory_info(_existing(device))


def memory_reserved(device=None) -> int:
    """Bytes held by the device's pool, in use or not."""
    return torch.accelerator.memory_reserved(_existing(device))


def max_memory_reserved(device=None) -> int:
    """The peak of memory_reserved() since the start, or since reset_peak_memory_stats()."""
    return torch.accelerator.max_memory_reserved(_existing(device))


def reset_peak_memory_stats(device=None) -> None:
    """Sets the `max_` figures to the present memory. Figures that a plugin counts itself go on."""
    torch.accelerator.reset_peak_memory_stats(_existing(device))


reset_max_memory_allocated = reset_peak_memory_stats


def reset_accumulated_memory_stats(device=None) -> None:
    """Accepted for compatibility's sake: memory_stats() has no sums."""
    torch.accelerator.reset_accumulated_memory_stats(_existing(device))


def memory_stats(device=None) -> dict[str, int]:
    """The figures of torch.accelerator.memory_stats by their full names, for example `allocated_bytes.all.peak`.

    Counted are `current` and `peak` of `allocated_bytes`, `active_bytes`, `requested_bytes` (all three are what live
    tensors and queued runs hold) and `reserved_bytes`, of `all` pools: the others are 0.
    """
    return torch.accelerator.memory_stats(_existing(device))


def memory_stats_as_nested_dict(device=None) -> dict[str, Any]:
    """The figures of memory_stats() as dicts in dicts: `["allocated_bytes"]["all"]["peak"]`."""
    return torch._C._accelerator_getDeviceStats(_existing(device))


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """A table of the present memory and the peaks.

    Args:
        abbreviated: leaves out the rows of the pool and of the whole device.
    """
    name = f"xla:{_existing(device)}"
    stats = memory_stats(device)
    rows = [("tensors and queued runs", "allocated_bytes")]
    if not abbreviated:
        rows.append(("the device's pool", "reserved_bytes"))
    figures = [(title, stats[f"{key}.all.current"], stats[f"{key}.all.peak"]) for title, key in rows]
    lines = [f"{title:<26}{_in_mib(now):>16}{_in_mib(peak):>16}" for title, now, peak in figures]
    if not abbreviated:
        lines.append(f"{'in all':<26}{_in_mib(mem_get_info(device)[1]):>16}")
    return "\n".join([f"{f'memory of {name}':<26}{'now':>16}{'at the peak':>16}", "-" * 58, *lines])


def _in_mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def empty_cache() -> None:
    """Gives unused memory of all devices back to the system.

    The next first touch of each page is expensive.
    """
    _XLAC._xla_empty_cache()
