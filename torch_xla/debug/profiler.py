"""The original's profiler (`xp`), over torch.profiler: named scopes and traces into a folder for TensorBoard."""

import inspect
import threading
import time

import torch

from .. import _api
from . import _profiler_server

_running: torch.profiler.profile | None = None


class Trace(torch.profiler.record_function):
    """Context manager that names the operations recorded in its body.

    Args:
        name: the scope's name in the trace.
        kwargs: further facts, added to the name.
    """

    def __init__(self, name: str, **kwargs):
        facts = "".join(f"#{key}={value}" for key, value in kwargs.items())
        super().__init__(name + facts)


class StepTrace(Trace):
    """A Trace of one training step; it syncs at its end.

    Args:
        name: the scope's name in the trace.
        kwargs: further facts, as `step_num=3`.
    """

    def __exit__(self, *exc):
        if exc[0] is None:
            _api.sync_devices([""], wait=False, cause=_api.SyncCause.STEP_TRACE)
        return super().__exit__(*exc)


def trace_me(scope: str):
    """Decorator: a Trace around each call."""
    return torch.profiler.record_function(scope)


class ProfilerServer:
    """What start_server() returns.

    Attributes:
        port: the server's port.
    """

    def __init__(self, port: int):
        self._server = _profiler_server.listen(port)
        self.port: int = self._server.server_port


def start_server(port: int, only_on_master: bool = True) -> ProfilerServer | None:
    """Lets trace() ask this process for traces, until it ends. The server takes connections of this machine only.

    A client of another kind sends `POST /trace?duration_ms=N` with a Host of this machine (`localhost:PORT`), and no
    Origin but that: a web page gets nothing. N is at most 600,000; one trace at a time, which ends with its connection.

    Args:
        port: where to listen; 0 for any that is free.
        only_on_master: only the first process of a run listens; the others get None.

    Raises:
        OSError: the port is taken.
    """
    from ..core.xla_model import is_master_ordinal

    return None if only_on_master and not is_master_ordinal() else ProfilerServer(port)


def start_trace(log_dir: str) -> None:
    """Starts to trace. Raises RuntimeError if a trace runs already."""
    global _running
    if _running is not None:
        raise RuntimeError("a trace runs already: call stop_trace() first")
    _running = torch.profiler.profile(on_trace_ready=torch.profiler.tensorboard_trace_handler(log_dir))
    _running.start()


def stop_trace() -> None:
    """Ends the trace and writes it into the folder of start_trace(). Raises RuntimeError if none runs."""
    global _running
    if _running is None:
        raise RuntimeError("no trace runs: call start_trace() first")
    running, _running = _running, None
    running.stop()


def trace(
    service_addr: str,
    logdir: str,
    duration_ms: int = 1000,
    num_tracing_attempts: int = 3,
    host_tracer_level: int = 2,
    device_tracer_level: int = 1,
    delay_ms: int = 0,
    timeout_s: int = 120,
    interval_s: int = 5,
) -> None:
    """Traces a process that has called start_server(), and writes a Chrome trace for TensorBoard or Perfetto.

    It shows the work of the process's devices, and of its threads for them.

    Args:
        service_addr: the server's address, as "localhost:9012".
        logdir: the folder for the file; made if it is not there.
        duration_ms: how long to trace; ten minutes at most.
        num_tracing_attempts: number of attempts if nothing answers or another trace runs.
        host_tracer_level, device_tracer_level: accepted for the original's sake: a trace has one level.
        delay_ms: how long to wait before the trace.
        timeout_s: how long to wait for an answer, in addition to the duration.
        interval_s: how long to wait between the attempts.

    Raises:
        OSError: no trace was received; the last attempt's reason.
        ValueError: a number is not positive, or the duration too long.
    """
    del host_tracer_level, device_tracer_level
    _check(duration_ms=duration_ms, num_tracing_attempts=num_tracing_attempts)
    time.sleep(delay_ms / 1000)
    for attempt in range(num_tracing_attempts):
        try:
            return _write_trace(service_addr, logdir, duration_ms, timeout_s)
        except OSError:
            if attempt + 1 == num_tracing_attempts:
                raise
            time.sleep(interval_s)


def _write_trace(service_addr: str, logdir: str, duration_ms: int, timeout_s: float) -> None:
    _profiler_server.write(_profiler_server.fetch(service_addr, duration_ms, timeout_s), logdir)


def _check(**numbers: int) -> None:
    for name, number in numbers.items():
        if number <= 0:
            raise ValueError(f"{name} must be positive, and is {number}")
    longest = _profiler_server.MAX_DURATION_MS
    if numbers["duration_ms"] > longest:
        raise ValueError(f"duration_ms must be at most {longest}, and is {numbers['duration_ms']}")


def trace_detached(*args, **kwargs) -> None:
    """As trace(), with its arguments, on a thread: the program goes on, and ends when the file is written."""
    given = inspect.signature(trace).bind(*args, **kwargs)
    given.apply_defaults()
    _check(duration_ms=given.arguments["duration_ms"])
    threading.Thread(target=trace, args=args, kwargs=kwargs, name="xla_trace").start()
