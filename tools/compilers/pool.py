"""Compiles many texts for a target: in child processes with a limit of time, which start again behind a fault.

Times are those of the processor, so that a machine with other work refuses nothing.
"""

import concurrent.futures
import dataclasses
import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_TOOLS = Path(__file__).resolve().parent.parent
_LAST_BYTES = 2000  # of what a child wrote before it ended
_MOST_WAITING = 20  # times the limit, in seconds of the clock: where a compiler sleeps for good


@dataclasses.dataclass
class Outcome:
    """What became of a text."""

    refusal: str  # empty: it compiled
    seconds: float  # of a processor
    memory: dict[str, int] | None = None
    flops: float | None = None
    cycles: int | None = None


class Child:
    """A process that compiles for a target, started when a text comes, started again after its end."""

    def __init__(self, command: Sequence[str], limit: float):
        self._command, self._limit = command, limit
        self._process: subprocess.Popen | None = None
        self._log = tempfile.TemporaryFile()
        self._scratch = tempfile.TemporaryDirectory()  # some compilers unpack files, which others must not find half

    def compile(self, path: Path) -> Outcome:
        """The text's outcome; a fault or the end of the time are refusals too."""
        if self._process is None:
            self._start()
        try:
            self._process.stdin.write(f"{path}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._lost()
        if not self._wait():
            self._end()
            return Outcome(f"no end within {self._limit:.0f} s", self._limit)
        answer = self._process.stdout.readline()
        return Outcome(**json.loads(answer)) if answer.endswith(b"\n") else self._lost()

    def _wait(self) -> bool:
        """Waits for an answer or the process's end. False: the text's time is over."""
        most, over = self._processor_time() + self._limit, time.monotonic() + _MOST_WAITING * self._limit
        while self._processor_time() < most and time.monotonic() < over:
            if select.select([self._process.stdout], [], [], min(1.0, self._limit / 2))[0]:
                return True
        return False

    def _processor_time(self) -> float:
        """Seconds that the process has had of all processors."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _start(self) -> None:
        path = os.pathsep.join(filter(None, [str(_TOOLS), os.environ.get("PYTHONPATH")]))
        self._log.seek(0)
        self._log.truncate()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": self._scratch.name},
        )

    def _lost(self) -> Outcome:
        """What a process that ended by itself says."""
        code = self._process.wait()
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _LAST_BYTES))
        said = self._log.read().decode(errors="replace").strip().splitlines()
        end = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._end()
        return Outcome(f"the compiler's process {end}: {said[-1] if said else 'it said nothing'}", 0)

    def close(self) -> None:
        """Ends the process for good."""
        self._end()
        self._log.close()
        self._scratch.cleanup()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None


def compile_all(
    target: str,
    plugin: Path,
    limit: float,
    texts: dict[str, Path],
    jobs: int,
    tell: Callable[[str, Outcome], None],
) -> dict[str, Outcome]:
    """Compiles texts by their names in as many children as there are jobs."""
    command = [sys.executable, "-m", "compilers.worker", target, str(plugin)]
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in texts:
        waiting.put(name)
    outcomes: dict[str, Outcome] = {}

    def work() -> None:
        child = Child(command, limit)
        try:
            while True:
                name = waiting.get_nowait()
                outcomes[name] = child.compile(texts[name])
                tell(name, outcomes[name])
        except queue.Empty:
            pass
        finally:
            child.close()

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(work) for _ in range(jobs)]:
            done.result()
    return {name: outcomes[name] for name in texts}
