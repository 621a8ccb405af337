#!/usr/bin/env python3
"""Checks all that needs a GPU in one run of less than 8 minutes: versions, tests, the example, times beside the peers.

    tools/gpu_check.py [--harness FOLDER] [--peer-python PYTHON]

Takes what is installed and says what is missing; nothing is fetched but, with --device LIBRARY, what
tools/compilers/wheels.py fetches: that one tries the script itself on XLA's CPU client. Each part has a budget of time
and is cut when it runs over. The report goes to stdout and to results/gpu_check_DEVICE.md, which grows part by part.
Exit status: 0, or 1 if a part failed or was cut.
"""

import argparse
import functools
import importlib.util
import os
import platform
import re
import shutil
import sys
import time
from pathlib import Path

import gpu_peers
from gpu_process import FailedError, NotRunError, ROOT, run

RESULTS = ROOT / "results"
MIN_ACCURACY = 85.0  # per cent, of the example after two epochs
CPP_FILTER = "Pjrt*:FakeClient*:StableHlo*:*PluginRows*"
# The tests are mostly compilation, in several processes that share the GPU's memory.
TEST_ENV = {
    "CUDA": {"XLA_FLAGS": "--xla_gpu_autotune_level=0", "PJRT_ALLOCATOR_PREALLOCATE": "0"},
    "LIBRARY": {"XLA_FLAGS": "--xla_backend_optimization_level=0"},
}
# A line of pytest -v, alone or with -n.
TEST_RESULT = re.compile(r"^(?:tests/.*|\[gw.*)(PASSED|FAILED|ERROR|SKIPPED)\b", re.MULTILINE)
VERSIONS = """
import importlib.metadata as metadata, platform
import torch, torch_xla, torch_xla.runtime
print("python", platform.python_version(), "on", platform.platform())
for name in WANTED:
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        print(name, "is not installed")
x = torch.arange(4.0).to("xla")
assert (x @ x + 1).item() == 15
print("device:", torch_xla.runtime.device_type(), torch_xla.core.xla_model.xla_real_devices(), "computes")
"""
WANTED = ["torch", "torch_xla", "triton", "jax", "jaxlib", "jax-cuda13-plugin", "jax-cuda13-pjrt", "jax-cuda12-plugin"]
FIND_WHEEL = """
from torch_xla.experimental import plugins
plugin = plugins.get("CUDA")
print("plugin:", plugin.library_path() if plugin else "")
"""


def require_modules(*names: str) -> None:
    """Raises NotRunError unless Python's modules are there."""
    missing = [name for name in names if not importlib.util.find_spec(name)]
    if missing:
        raise NotRunError(f"missing Python modules: {', '.join(missing)}")


class Check:
    """The parts; each returns (what was found, in one line; details in Markdown) or raises one of the errors above."""

    def __init__(self, options):
        self._options = options
        self._device = options.device
        self._env = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, "PJRT_DEVICE": self._device}
        self._env.update(TORCH_DEVICE_BACKEND_AUTOLOAD="0", XLA_PERSISTENT_CACHE_PATH="")
        self._env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

    @functools.cached_property
    def _plugin(self) -> str:
        """Path of the plugin."""
        if self._options.plugin:
            return self._options.plugin
        find = ["-c", FIND_WHEEL] if self._device == "CUDA" else [ROOT / "tools/compilers/wheels.py"]
        done = run([sys.executable, *find], 300, {**self._env, "PJRT_DEVICE": "CPU"})
        path = done.last_line().removeprefix("plugin:").strip()
        if done.status != 0 or not path:
            raise NotRunError(f"no PJRT plugin for {self._device}: {path or 'pip has no jax-cuda13-plugin'}")
        return path

    def _device_env(self, **more: str) -> dict:
        """The environment of a program that uses the device; raises NotRunError if there is no plugin."""
        plugin = self._plugin
        chosen = {"PJRT_LIBRARY_PATH": plugin} if self._device == "LIBRARY" else {}
        return {**self._env, **chosen, **more}

    def versions(self, seconds: float) -> tuple[str, str]:
        """What is installed, and whether the device computes."""
        smi = "no nvidia-smi here"
        if shutil.which("nvidia-smi"):
            query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
            smi = run(query, 10, self._env).text.strip()
        env = self._device_env()
        done = run([sys.executable, "-c", f"WANTED = {WANTED}" + VERSIONS], seconds - 10, env)
        done.require_success("the first computation")
        return f"{smi}; {done.last_line()}", f"```\nplugin {self._plugin}\n{smi}\n{done.text}```"

    def cpp_tests(self, seconds: float) -> tuple[str, str]:
        """The C++ tests that take a plugin."""
        tests = Path(self._options.cpp_tests).resolve()
        if not tests.is_file():
            raise NotRunError(f"{tests} is not built: cmake --preset release && cmake --build --preset release-tests")
        env = self._device_env(XLA_TEST_PJRT_PLUGIN=self._plugin, **TEST_ENV[self._device])
        done = run([tests, f"--gtest_filter={CPP_FILTER}"], seconds, env)
        words = ("OK", "FAILED", "SKIPPED")
        counts = {word: len(set(re.findall(rf"\[ +{word} +\] (\w+\.\S+)", done.text))) for word in words}
        summary = ", ".join(f"{count} {word}" for word, count in counts.items())
        done.require_success(summary)
        return summary, ""

    def python_tests(self, seconds: float) -> tuple[str, str]:
        """The Python tests not marked slow."""
        require_modules("pytest", "pytest_timeout", "torch")
        workers = ["-n", self._options.workers] if importlib.util.find_spec("xdist") else []
        command = [sys.executable, "-m", "pytest", "tests/python", "-v", "--tb=line", "-m", "not slow", *workers]
        done = run(command, seconds, self._device_env(**TEST_ENV[self._device]))
        words = TEST_RESULT.findall(done.text)
        summary = ", ".join(f"{words.count(word)} {word.lower()}" for word in sorted(set(words))) or "no test ran"
        done.require_success(summary)
        return summary, ""

    def digits(self, seconds: float) -> tuple[str, str]:
        """The example, two epochs on the device and two on eager PyTorch."""
        require_modules("matplotlib", "sklearn", "tqdm")
        command = [sys.executable, "examples/train_digits.py", "--epochs", 2, "--out", RESULTS / "gpu_check_digits.png"]
        done = run(command, seconds, self._device_env())
        done.require_success("examples/train_digits.py")
        lines = [line for line in done.text.splitlines() if re.search(r"epoch \d: loss|Time per epoch|fell back", line)]
        accuracy = re.search(r"Test accuracy ([\d.]+) %", done.text)
        if not accuracy or float(accuracy[1]) < MIN_ACCURACY:
            raise FailedError("failed", f"{done.last_line()}; wanted: {MIN_ACCURACY} %", "\n".join(lines))
        return f"test accuracy {accuracy[1]} %", "```\n" + "\n".join(lines) + "\n```"

    def peers(self, seconds: float) -> tuple[str, str]:
        """Training steps beside eager PyTorch, torch.compile and JAX."""
        harness = self._options.harness
        if not harness:
            raise NotRunError("no benchmark harness: name its folder with --harness")
        peer_python = self._options.peer_python
        table, failed = gpu_peers.table(self._device, harness, peer_python, seconds, self._device_env())
        if failed:
            lines = "\n".join([*failed, "", table])
            word = "cut" if all(": not ready" in line for line in failed) else "failed"
            raise FailedError(word, f"torch_xla gave no time for {len(failed)} workloads", lines)
        note = "torch_xla and PyTorch multiply matrices in float32 and may convolve in TF32; JAX takes TF32 for both."
        return "see the table", f"{table}\n\n{note}"


# Title, part, seconds that it may take. The last one has what the others leave of SECONDS.
PARTS = [
    ("versions and device", Check.versions, 60),
    ("C++ tests with a plugin", Check.cpp_tests, 80),
    ("Python tests, fast ones", Check.python_tests, 150),
    ("examples/train_digits.py", Check.digits, 50),
    ("steps beside the peers", Check.peers, None),
]
SECONDS = 460


def outcome(check: Check, part, seconds: float) -> tuple[str, str, str]:
    """passed, failed, cut or not run; why or what in one line; details."""
    try:
        return "passed", *part(check, seconds)
    except NotRunError as error:
        return "not run", str(error), ""
    except FailedError as error:
        word, what, lines = error.args
        return word, what, lines if "|---" in lines else f"```\n{lines}\n```"


def report(device: str, rows: list, details: list) -> str:
    """The report as Markdown."""
    head = f"# GPU check, PJRT_DEVICE={device}, {time.strftime('%Y-%m-%d %H:%M')}, {platform.node()}\n"
    table = ["| part | outcome | seconds | what |", "|---|---|---|---|"]
    table += [f"| {title} | {word} | {seconds:.0f} | {what} |" for title, word, seconds, what in rows]
    return "\n".join([head, *table, *(f"\n## {title}\n\n{text}" for title, text in details if text)]) + "\n"


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found = "CUDA" if shutil.which("nvidia-smi") else "LIBRARY"
    parser.add_argument("--device", choices=("CUDA", "LIBRARY"), default=found, help="default: CUDA beside nvidia-smi")
    parser.add_argument("--plugin", help="default: pip's for CUDA, tools/compilers/wheels.py's for LIBRARY")
    parser.add_argument("--harness", help="folder with the benchmark's run.py; without it no steps are timed")
    parser.add_argument("--peer-python", default=sys.executable, help="Python that has the peers; default: this one")
    workers = min(os.cpu_count() or 1, 16)
    parser.add_argument("--workers", type=int, default=workers, help="processes of pytest-xdist; default: %(default)s")
    tests = ROOT / "build/release/tests/cpp/torch_xla_tests"
    parser.add_argument("--cpp-tests", default=tests, help="the C++ tests; default: the preset release's")
    options = parser.parse_args()
    if options.harness and not Path(options.harness, "run.py").is_file():
        parser.error(f"--harness {options.harness}: there is no run.py in it")
    return options


def main() -> int:
    """Runs the parts and writes the report; returns the exit status."""
    options = read_options()
    check, rows, details = Check(options), [], []
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"gpu_check_{options.device}.md"
    end = time.monotonic() + SECONDS
    for title, part, most in PARTS:
        start = time.monotonic()
        seconds = min(most or SECONDS, end - start)
        print(f"{title} (at most {seconds:.0f} s)", file=sys.stderr, flush=True)
        word, what, text = outcome(check, part, seconds)
        rows.append((title, word, time.monotonic() - start, what))
        details.append((title, text))
        path.write_text(report(options.device, rows, details))
    print(path.read_text())
    return 1 if any(word in ("failed", "cut") for _, word, _, _ in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
