"""Fixtures of the Python tests: the device, a count of compiled programs, subprocesses."""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from plugin_differences import find_difference
from release_differences import find_release_difference
from replica_pool import Pool

import torch_xla
import torch_xla.debug.metrics as met

# Kernels of this run alone, which the workers of pytest-xdist share; unless the caller names a directory. Programs are
# not kept, as the tests count those that are compiled: where their folder should be there is a file.
if "XLA_PERSISTENT_CACHE_PATH" not in os.environ:
    os.environ["XLA_PERSISTENT_CACHE_PATH"] = tempfile.mkdtemp(prefix="torch_xla_tests_")
    Path(os.environ["XLA_PERSISTENT_CACHE_PATH"], "programs").touch()
    atexit.register(shutil.rmtree, os.environ["XLA_PERSISTENT_CACHE_PATH"], ignore_errors=True)


# Small programs are compiled at once: the tests are such, and test the compiler (test_interpreted.py tests the others).
os.environ.setdefault("XLA_INTERPRETED_OPERATIONS", "0")
# The rules of graphs and schedules are checked, also in the programs that tests start.
os.environ.setdefault("XLA_VERIFY", "1")
# Who waits for a replica says so before the time of a test is over.
os.environ.setdefault("XLA_COLLECTIVE_TIMEOUT", "150")


def pytest_collection_modifyitems(items):
    """Skips what the release of PyTorch or the engine under test (PJRT_DEVICE) cannot do."""
    is_plugin = os.environ.get("PJRT_DEVICE", "CPU") != "CPU"
    for item in items:
        if reason := find_release_difference(item) or (is_plugin and find_difference(item)):
            item.add_marker(pytest.mark.skip(reason=reason))


def end_programs() -> None:
    """Runs what is pending and waits for it, whatever comes of it."""
    with contextlib.suppress(Exception):
        torch_xla.sync(wait=True)


@pytest.fixture
def device() -> Iterator[torch.device]:
    """The device under test, with a fixed seed and nothing pending. A test's error is never the next one's."""
    end_programs()
    torch.manual_seed(0)
    yield torch_xla.device()
    end_programs()


@pytest.fixture
def whole(request) -> bool:
    """Whether all types and samples of PyTorch's databases are asked for."""
    return request.config.option.whole


@pytest.fixture
def thread_seconds(request) -> float:
    """How long threads run scripts beside each other."""
    return request.config.option.thread_seconds


class CompileCount:
    """Programs made since it was made or reset: compiled, or planned anew from code that earlier tests have left."""

    def __init__(self):
        self.reset()

    @staticmethod
    def _total() -> int:
        return sum(met.counter_value(name) or 0 for name in ("UncachedCompile", "ReplannedProgram"))

    def reset(self) -> None:
        """Starts again at zero."""
        self._start = self._total()

    @property
    def value(self) -> int:
        """The count."""
        return self._total() - self._start


@pytest.fixture
def compiles(device) -> CompileCount:
    """Counts compiled programs from here on."""
    return CompileCount()


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Calls a function in two replicas, or in another number, which the tests of a file share."""
    pool = Pool()
    yield pool
    pool.close()


@pytest.fixture
def forking():
    """A TorchScript function of a tensor: twice of tanh(x) + 1, which it computes in torch.jit.fork."""

    @torch.jit.script
    def inner(x: torch.Tensor):
        return x.tanh() + 1

    @torch.jit.script
    def both(x: torch.Tensor):
        a = torch.jit.fork(inner, x)
        return torch.jit.wait(a) * 2

    return both


@pytest.fixture
def python_path():
    """python_path(*folders): PYTHONPATH with these folders first, before those of this process."""
    return lambda *folders: os.pathsep.join(map(str, filter(None, [*folders, os.environ.get("PYTHONPATH")])))


@pytest.fixture
def users_environment() -> dict[str, str]:
    """The environment of a user's program on the embedded engine: without the settings of the tests."""
    ours = ("PJRT_", "XLA_INTERPRETED_OPERATIONS", "XLA_VERIFY", "XLA_COLLECTIVE_TIMEOUT")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


@pytest.fixture
def run_python():
    """Function that runs a program in a fresh interpreter and returns what it printed; the test fails if it fails."""

    def run(source: str, timeout: float = 120, returncode: int = 0, **env) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(source)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **env},
            # Ctrl-C reaches it also where the tests run in the background, which shells start with SIGINT ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert done.returncode == returncode, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run
