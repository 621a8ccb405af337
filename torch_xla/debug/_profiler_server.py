"""Traces for others: a thread that listens on a port of this machine, and its clients."""

import http.client
import os
import socket
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity

_PATH = "/trace"
_BUSY = 409  # the HTTP status "conflict"
_tracing = threading.Lock()


def record_process(duration_ms: int) -> bytes | None:
    """The Chrome trace of what all threads do for so long, or None while the process traces itself already."""
    if not _tracing.acquire(blocking=False):
        return None
    try:
        if torch.autograd.profiler._is_profiler_enabled:
            return None
        profiler = torch.profiler.profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1],
            experimental_config=_ExperimentalConfig(profile_all_threads=True),
        )
        profiler.start()
        profiler.profiler.use_device = None  # else its end would sync in the middle of a step
        time.sleep(duration_ms / 1e3)
        profiler.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            profiler.export_chrome_trace(path)
            with open(path, "rb") as file:
                return file.read()
    finally:
        _tracing.release()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Answers POST /trace?duration_ms=N."""
        url = urlsplit(self.path)
        duration = parse_qs(url.query).get("duration_ms", [""])[0]
        if url.path != _PATH or not duration.isdecimal():
            self.send_error(404, f"wanted {_PATH}?duration_ms=NUMBER")
            return
        trace = record_process(int(duration))
        if trace is None:
            self.send_error(_BUSY, "the process is being traced already")
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(trace)))
        self.end_headers()
        self.wfile.write(trace)

    def log_message(self, *args) -> None:
        """Writes nothing."""


def listen(port: int) -> ThreadingHTTPServer:
    """Serves traces on a port of the loopback interface, on a thread until the process ends. OSError if it is taken."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="xla_profiler", daemon=True).start()
    return server


def fetch(address: str, duration_ms: int, timeout_s: float) -> bytes:
    """Asks the server at HOST:PORT for a trace. Raises OSError where none answers or the process is busy."""
    connection = http.client.HTTPConnection(address, timeout=timeout_s + duration_ms / 1e3)
    try:
        connection.request("POST", f"{_PATH}?duration_ms={duration_ms}")
        response = connection.getresponse()
        text = response.read()
    except http.client.HTTPException as error:
        raise OSError(f"what answers at {address} is no server of start_server(): {error!r}") from error
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise OSError(f"{address} gives no trace: {response.reason}")
    return text


def write(trace: bytes, folder: str) -> str:
    """Writes a trace into the folder, under a name by which TensorBoard finds it, and returns its path."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{socket.gethostname()}_{os.getpid()}.{time.time_ns()}.pt.trace.json")
    with open(path, "wb") as file:
        file.write(trace)
    return path
