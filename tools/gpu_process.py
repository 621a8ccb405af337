"""Programs that gpu_check.py runs: each within a limit of time, with what it printed."""

import contextlib
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIRST_LINES = 12  # of an error, in the report


class NotRunError(Exception):
    """Something that a part needs is missing; the text says what."""


class FailedError(Exception):
    """A part failed or was cut: (the word for it, what in one line, first lines of the error)."""


@dataclass
class Done:
    """What a process left: its exit status (None: it was cut) and what it printed."""

    status: int | None
    text: str

    def require_success(self, what: str) -> None:
        """Raises FailedError unless the status is 0."""
        if self.status != 0:
            word, how = ("cut", "out of time") if self.status is None else ("failed", f"exit status {self.status}")
            raise FailedError(word, f"{what}; {how}", error_lines(self.text))

    def last_line(self) -> str:
        """The last line that it printed."""
        return last_line(self.text)


def error_lines(text: str) -> str:
    """The first lines that tell of errors; the last lines if none does."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"FAILED |ERROR |\[  FAILED|E  |(\w+\.)*\w*Error\b", line)]
    return "\n".join(line[:300] for line in errors[:FIRST_LINES] or lines[-FIRST_LINES:])


def start(command: list, env: dict, **streams) -> subprocess.Popen:
    """A program that runs from the root of the repository, in a session of its own; stderr goes where stdout goes."""
    return subprocess.Popen(
        list(map(str, command)), cwd=ROOT, env=env, stderr=subprocess.STDOUT, start_new_session=True, **streams
    )


def stop(process: subprocess.Popen) -> None:
    """Interrupts the process and what it started, so that it may tell what it found; kills them after 5 seconds."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Worker:
    """A program that runs on beside this one and is spoken to by lines. Leaving the context stops it."""

    def __init__(self, command: list, env: dict):
        self._process = start(command, env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._text = ""  # printed and read
        self._taken = 0  # characters of it that were given out

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends it; once is enough."""
        stop(self._process)

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def write_line(self, text: str) -> None:
        """Tells it a line; one that has ended is not told."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{text}\n".encode())

    def read_line(self, seconds: float) -> str:
        """The next line, with its end; empty after that time, and when there will be none."""
        end = time.monotonic() + seconds
        while (stop_at := self._text.find("\n", self._taken)) < 0:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))
            more = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            if not more:
                return ""
            self._text += more.decode(errors="replace")
        line, self._taken = self._text[self._taken : stop_at + 1], stop_at + 1
        return line

    def last_line(self) -> str:
        """The last line that it printed."""
        return last_line(self._text)


def last_line(text: str) -> str:
    """The last line with text, fit for a cell of a table."""
    return (text.strip().splitlines() or ["no output"])[-1].replace("|", "/")[:160]


def run(command: list, seconds: float, env: dict) -> Done:
    """Runs a program from the root of the repository, for at most `seconds`; then it is stopped."""
    with tempfile.TemporaryFile() as output:
        process = start(command, env, stdout=output)
        try:
            status = process.wait(max(1, seconds))
        except subprocess.TimeoutExpired:
            status = None
            stop(process)
        output.seek(0)
        return Done(status, output.read().decode(errors="replace"))
