"""Tests of a file in processes that may die, for run_pytorch_tests.py: what became of each."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WORKER = Path(__file__).resolve().parent / "pytorch_tests_worker.py"
TEXT = 200  # characters of an error on the page

stopping = threading.Event()  # set: the processes of all threads end, and no other ones follow


@dataclass
class Result:
    """What became of a test: passed, failed, crashed, timed out or skipped."""

    name: str
    outcome: str
    text: str = ""  # why, in a line
    fallbacks: tuple[str, ...] = ()  # operations that it ran on the CPU


@dataclass(frozen=True)
class Job:
    """A file and how its tests are run."""

    folder: Path
    file: str
    environment: dict[str, str]  # {temporary} in a text is a folder of the process, which ends with it
    timeout: float  # seconds of a test
    load_timeout: float  # seconds of the file's import


class Process:
    """A worker that has loaded the file, or could not; it runs tests once."""

    def __init__(self, job: Job):
        self._job, self._buffer, self._is_late = job, b"", False
        self._output = tempfile.TemporaryFile()
        self._folder = tempfile.TemporaryDirectory()
        variables = {name: text.replace("{temporary}", self._folder.name) for name, text in job.environment.items()}
        self._events, write_end = os.pipe()
        paths = [str(job.folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, WORKER, str(write_end), job.folder, job.file],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            pass_fds=[write_end],
            cwd=job.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables},
            start_new_session=True,
        )
        os.close(write_end)
        loaded = self._next_event(job.load_timeout) or {"kind": "unloadable", "text": ""}
        self.names: list[str] | None = loaded.get("names")
        self.problem = "" if self.names is not None else loaded["text"] or self._describe_end()

    def run(self, names: list[str]) -> Iterator[Result]:
        """Runs tests in order, and ends. Names without a result were not run."""
        left = dict.fromkeys(names)
        self._send(names)
        running, last = "", None  # the last result waits: the process may still die of that test
        is_done = False
        while (event := self._next_event(self._job.timeout)) is not None:
            is_done = event["kind"] == "done"
            if event["kind"] == "start":
                running = event["name"]
                yield from [last] if last else []
                last = None
            elif event["kind"] == "end":
                running = ""
                last = Result(event["name"], event["outcome"] or "passed", event["text"], tuple(event["fallbacks"]))
                left.pop(last.name, None)
            elif event["kind"] == "fixture":
                owned = [name for name in left if not event["owner"] or name.startswith(event["owner"] + ".")]
                yield from (Result(name, event["outcome"], event["text"]) for name in owned)
                if last and not owned and event["outcome"] == "failed":
                    last = Result(last.name, "failed", event["text"])
        if is_done and self._process.returncode == 0:
            yield from [last] if last else []
            return
        word = "timed out" if self._is_late else "crashed"
        if running:
            yield Result(running, word, self._describe_end())
        elif last:
            when = "at the end of the process: " if is_done else "after it: "
            yield Result(last.name, word, when + self._describe_end())

    def stop(self) -> None:
        """Ends the process and what it started, if they live."""
        for number in (signal.SIGABRT, signal.SIGKILL):  # at the first, faulthandler writes where it is
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self._process.wait()

    def close(self) -> None:
        """Ends the process and forgets what it wrote."""
        self.stop()
        self._process.stdin.close()
        self._output.close()
        self._folder.cleanup()
        os.close(self._events)

    def _send(self, names: list[str]) -> None:
        try:
            self._process.stdin.write(json.dumps(names).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died, as the next event tells

    def _next_event(self, seconds: float) -> dict | None:
        """The next event. None if the process has ended, or was ended because there was none for that long."""
        end = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            had_ended = self._process.poll() is not None
            if select.select([self._events], [], [], 0 if had_ended else 0.2)[0]:
                data = os.read(self._events, 1 << 16)
                self._buffer += data
                if data:
                    continue
                had_ended = self._wait_for_end(end)
            if had_ended:
                return None
            if time.monotonic() > end or stopping.is_set():
                self._is_late = True
                self.stop()
                return None
        line, self._buffer = self._buffer.split(b"\n", 1)
        return json.loads(line)

    def _wait_for_end(self, end: float) -> bool:
        """The pipe is closed: the process ends soon, or hangs at its end."""
        try:
            self._process.wait(max(0.2, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _describe_end(self) -> str:
        """How the process ended, and where in the tests' file or by which error."""
        self._output.seek(0)
        output = self._output.read().decode(errors="replace")
        where = re.findall(rf'File ".*{re.escape(Path(self._job.file).name)}", line (\d+) in (\w+)', output)
        errors = re.findall(r"^(?:terminate called|  what\(\):|(?:\w+\.)*\w*Error: ).*$", output, re.MULTILINE)
        status = self._process.returncode
        how = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
        parts = ["out of time" if self._is_late else how]
        parts += [f"in {where[0][1]}, line {where[0][0]}"] if where else []
        parts += [error.strip() for error in errors[-1:] if not self._is_late]
        return "; ".join(parts)[:TEXT]


def run_shard(job: Job, names: list[str], process: Process | None = None) -> Iterator[Result]:
    """What becomes of each test. A process that dies is followed by another one, which goes on with the rest."""
    left = dict.fromkeys(names)
    while left and not stopping.is_set():
        process = process or Process(job)
        before = len(left)
        if process.names is not None:
            for result in process.run(list(left)):
                left.pop(result.name, None)
                yield result
        problem = process.problem
        process.close()
        process = None
        if len(left) == before:
            yield from (Result(name, "failed", f"did not run: {problem or 'it has no result'}") for name in left)
            return
