"""Metrics and counters of the device. A counter `aten::x` counts fallbacks of op x to the CPU."""

from collections.abc import Sequence

from .. import _XLAC

_SHORT_COUNTERS = ("CachedCompile", "MarkStep", "DynamoSyncInputExecuteTime")
_SHORT_METRICS = (
    "CompileTime",
    "ExecuteTime",
    "ExecuteReplicatedTime",
    "TransferToDeviceTime",
    "TransferFromDeviceTime",
)


def metrics_report() -> str:
    """All counters and metrics, as text."""
    return _XLAC._xla_metrics_report()


def short_metrics_report(counter_names: Sequence[str] | None = None, metric_names: Sequence[str] | None = None) -> str:
    """The report with the named counters and metrics only, and all fallbacks to the CPU.

    By default the names show whether a program compiles and transfers too often.
    """
    counters = list(_SHORT_COUNTERS if counter_names is None else counter_names)
    return _XLAC._short_xla_metrics_report(counters, list(_SHORT_METRICS if metric_names is None else metric_names))


def metric_names() -> list[str]:
    """Names of the metrics that have samples."""
    return _XLAC._xla_metric_names()


def metric_data(name: str) -> tuple[int, float, tuple[tuple[float, float], ...]] | None:
    """(number of samples, their sum, the last 1024 as (seconds since the epoch, value)), or None if there is none.

    Times are in nanoseconds, sizes in bytes. In eager mode this waits for the operations that were called.
    """
    if not _XLAC._lazy():
        _XLAC._xla_wait_device_ops()
    return _XLAC._xla_metric_data(name)


def counter_names() -> list[str]:
    """Names of the counters that are not zero."""
    return _XLAC._xla_counter_names()


def counter_value(name: str) -> int | None:
    """Value of the counter, or None if it was never counted."""
    return _XLAC._xla_counter_value(name)


def clear_counters() -> None:
    """Sets all counters to zero."""
    _XLAC._clear_xla_counters()


def clear_metrics() -> None:
    """Drops all samples."""
    _XLAC._clear_xla_metrics()


def clear_all() -> None:
    """Sets everything to zero."""
    clear_metrics()
    clear_counters()


def executed_fallback_ops() -> list[str]:
    """The counters `aten::x`, and those of operations of other libraries: ops that ran on the CPU."""
    return _XLAC._get_executed_fallback_ops()
