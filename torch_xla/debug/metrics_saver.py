"""Metrics reports, step by step, into a file."""

import sys
import threading

from .. import _world, _XLAC
from . import metrics

_lock = threading.Lock()  # guards the file and _steps
_steps = 0


def save_metrics(metrics_file: str | None = None) -> None:
    """Appends the metrics report, with a line `[MetricsData; step=N]` before it.

    Args:
        metrics_file: a path, "STDOUT" or "STDERR"; None is the one that XLA_METRICS_FILE names. In a run of several
            replicas that one gets the number on this machine behind it, as in `metrics.txt.0`.

    Does nothing where none is named. N counts the calls that wrote, from 0.
    """
    global _steps
    path = metrics_file or _named_by_environment()
    if not path:
        return
    with _lock:
        text = f"[MetricsData; step={_steps}]\n{metrics.metrics_report()}\n"
        _steps += 1
        if path in ("STDOUT", "STDERR"):
            print(text, file=sys.stdout if path == "STDOUT" else sys.stderr)
        else:
            with open(path, "a", encoding="utf-8") as file:
                file.write(text)


def _named_by_environment() -> str:
    path = _XLAC._env_text("XLA_METRICS_FILE")
    several = path and path not in ("STDOUT", "STDERR") and _world.current().size > 1
    return f"{path}.{_world.current().local_rank}" if several else path


def save_step() -> None:
    """After each step: save_metrics() to the file that XLA_METRICS_FILE names, by the first replica of the machine."""
    if _XLAC._env_is_set("XLA_METRICS_FILE") and _world.current().local_rank == 0:
        save_metrics()
