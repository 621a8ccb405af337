"""Traces for others: a thread that listens on a port of this machine, and its clients."""

import contextlib
import http.client
import os
import re
import select
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import torch
from torch.profiler import ProfilerActivity

from .. import _XLAC

_PATH = "/trace"
MAX_DURATION_MS = 600_000
_REQUEST_SECONDS = 10  # seconds for a whole request
_MAX_CONNECTIONS = 8  # at a time; others are closed
_PAUSE_SECONDS = 0.05  # between two checks of the client
_HOSTS = ("127.0.0.1", "localhost", "[::1]")  # names of this machine for clients
_tracing = threading.Lock()


class BusyError(Exception):
    """The process is being traced already."""


def record_process(duration_ms: int, is_wanted: Callable[[], bool]) -> bytes | None:
    """The Chrome trace of all threads for this duration, or None as soon as the client has gone.

    Raises BusyError while the process traces itself already.
    """
    if not _tracing.acquire(blocking=False):
        raise BusyError
    try:
        if torch.autograd.profiler._is_profiler_enabled:
            raise BusyError
        _XLAC._profile_all_threads(True)
        profiler = torch.profiler.profile(activities=[ProfilerActivity.PrivateUse1])
        profiler.start()
        try:
            profiler.profiler.use_device = None  # else its end would sync in the middle of a step
            end = time.monotonic() + duration_ms / 1e3
            while (left := end - time.monotonic()) > 0 and is_wanted():
                time.sleep(min(left, _PAUSE_SECONDS))
        finally:
            profiler.stop()
        return _text_of(profiler) if is_wanted() else None
    finally:
        _XLAC._profile_all_threads(False)
        _tracing.release()


def _text_of(profiler: torch.profiler.profile) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path, "rb") as file:
            return file.read()


class _Handler(BaseHTTPRequestHandler):
    """Answers POST /trace?duration_ms=N of programs on this machine, not of web pages in its browser."""

    def setup(self) -> None:
        """Limits the time in which the request comes."""
        super().setup()
        self._limit = threading.Timer(_REQUEST_SECONDS, self._close)
        self._limit.daemon = True
        self._limit.start()

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def parse_request(self) -> bool:
        """Reads the request's head, which has all that is needed."""
        try:
            return super().parse_request()
        finally:
            self._limit.cancel()

    def finish(self) -> None:
        """The connection ends."""
        self._limit.cancel()
        super().finish()

    def do_POST(self) -> None:
        """Answers with the trace, or the reason why there is none."""
        refusal = self._refusal()
        if refusal is not None:
            self.send_error(*refusal)
            return
        try:
            trace = record_process(int(self._duration()), self._is_wanted)
        except BusyError:
            self.send_error(HTTPStatus.CONFLICT, "the process is being traced already")
            return
        if trace is None:
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(trace)))
        self.end_headers()
        self.wfile.write(trace)

    def _refusal(self) -> tuple[HTTPStatus, str] | None:
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._own_names():
            return HTTPStatus.FORBIDDEN, f"wanted one Host, {' or '.join(self._own_names())}"
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            return HTTPStatus.FORBIDDEN, "a page of another origin gets no trace"
        if urlsplit(self.path).path != _PATH:
            return HTTPStatus.NOT_FOUND, f"wanted {_PATH}?duration_ms=NUMBER"
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            return HTTPStatus.BAD_REQUEST, "a request has no body"
        duration = self._duration()
        if not re.fullmatch(r"[0-9]{1,9}", duration) or not 0 < int(duration) <= MAX_DURATION_MS:
            return HTTPStatus.BAD_REQUEST, f"wanted a duration_ms from 1 to {MAX_DURATION_MS}"
        return None

    def _own_names(self) -> list[str]:
        return [f"{host}:{self.server.server_port}" for host in _HOSTS]

    def _duration(self) -> str:
        durations = parse_qs(urlsplit(self.path).query).get("duration_ms", [])
        return durations[0] if len(durations) == 1 else ""

    def _is_wanted(self) -> bool:
        """Whether the client is still there."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return not readable or bool(self.connection.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def log_message(self, *args) -> None:
        """Writes nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int):
        self._free = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request, client_address) -> None:
        """Starts a thread for the request, or closes it if there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._free.release()
            raise

    def process_request_thread(self, request, client_address) -> None:
        """The thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request, client_address) -> None:
        """Writes nothing: the client is gone."""


def listen(port: int) -> ThreadingHTTPServer:
    """Serves traces on a port of the loopback interface, on a thread until the process ends. OSError if it is taken."""
    server = _Server(port)
    try:
        threading.Thread(target=server.serve_forever, name="xla_profiler", daemon=True).start()
    except RuntimeError:  # no thread can be started: the port is free for the next attempt
        server.server_close()
        raise
    return server


def fetch(address: str, duration_ms: int, timeout_s: float) -> bytes:
    """Asks the server at HOST:PORT for a trace. Raises OSError if none answers or the process is busy."""
    connection = http.client.HTTPConnection(address, timeout=timeout_s + duration_ms / 1e3)
    try:
        connection.request("POST", f"{_PATH}?duration_ms={duration_ms}")
        response = connection.getresponse()
        text = response.read()
    except http.client.HTTPException as error:
        raise OSError(f"what answers at {address} is no server of start_server(): {error!r}") from error
    finally:
        connection.close()
    if response.status != HTTPStatus.OK:
        raise OSError(f"{address} gives no trace: {response.reason}")
    return text


def write(trace: bytes, folder: str) -> str:
    """Writes a trace into the folder, under a name by which TensorBoard finds it, and returns its path."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{socket.gethostname()}_{os.getpid()}.{time.time_ns()}.pt.trace.json")
    with open(path, "wb") as file:
        file.write(trace)
    return path
