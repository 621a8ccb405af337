"""Metrics reports, step by step, into a file."""

import contextlib
import os
import sys
import threading
import warnings

from .. import _world, _XLAC
from . import metrics

_STREAMS = ("STDOUT", "STDERR")
_lock = threading.Lock()  # guards the file and _steps
_steps = 0
_has_warned = False


def save_metrics(metrics_file: str | None = None) -> None:
    """Appends the metrics report, with a line `[MetricsData; step=N]` before it.

    Args:
        metrics_file: a path, "STDOUT" or "STDERR"; None is the one that XLA_METRICS_FILE names. In a run of several
            replicas that path gets the number on this machine as suffix, as in `metrics.txt.0`.

    Does nothing without a file. N counts the calls that wrote, from 0. If the disk is full, the file gets its old
    length back and OSError is raised.
    """
    global _steps
    path = metrics_file or _named_by_environment()
    if not path:
        return
    with _lock:
        text = f"[MetricsData; step={_steps}]\n{metrics.metrics_report()}\n"
        if path in _STREAMS:
            print(text, file=sys.stdout if path == "STDOUT" else sys.stderr)
        else:
            _append(path, text)
        _steps += 1


def _append(path: str, text: str) -> None:
    with open(path, "a+b", buffering=0) as file:
        size = file.tell() if file.seekable() else 0
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":  # a process was killed in the middle of a line
            text = "\n" + text
        rest = memoryview(text.encode())
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            with contextlib.suppress(OSError):  # of a pipe or a device
                file.truncate(size)
            raise


def _named_by_environment() -> str:
    path = _XLAC._env_text("XLA_METRICS_FILE")
    if not path or path in _STREAMS:
        return path
    path = _XLAC._full_path(path)
    return f"{path}.{_world.current().local_rank}" if _world.current().size > 1 else path


def save_step() -> None:
    """After each step: save_metrics() to the file that XLA_METRICS_FILE names, by the first replica of the machine.

    If the file cannot be written there is one warning: a report must not end a training.
    """
    global _has_warned
    if not _XLAC._env_is_set("XLA_METRICS_FILE") or _world.current().local_rank != 0:
        return
    try:
        save_metrics()
    except OSError as error:
        if not _has_warned:
            _has_warned = True
            text = f"the metrics report cannot be written to XLA_METRICS_FILE: {error}. The program goes on"
            warnings.warn(text, stacklevel=4)  # the line that syncs
