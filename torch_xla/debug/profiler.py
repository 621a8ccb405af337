"""The original's profiler (`xp`), over torch.profiler: named scopes and traces into a folder for TensorBoard."""

import torch

from .. import _api

_running: torch.profiler.profile | None = None


class Trace(torch.profiler.record_function):
    """Context manager that names what is recorded in its body.

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


def trace_me(name: str):
    """Decorator: a Trace around each call."""
    return torch.profiler.record_function(name)


class ProfilerServer:
    """What start_server() returns."""

    def __init__(self, port: int):
        self.port = port


def start_server(port: int, only_on_master: bool = True) -> ProfilerServer:
    """Accepted for the original's sake: no server listens. Use start_trace() and stop_trace() in the program itself."""
    del only_on_master
    return ProfilerServer(port)


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


def trace(service_addr: str, logdir: str, **kwargs) -> None:
    """Traces another process. Raises NotImplementedError: call start_trace() and stop_trace() in that process."""
    raise NotImplementedError(
        "a trace from outside is not supported: call start_trace() and stop_trace() in the program"
    )


trace_detached = trace
