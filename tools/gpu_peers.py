"""Times training steps of a harness on the device `xla` and on its peers, for gpu_check.py: one Markdown table."""

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from gpu_process import run

WORKLOADS = ["W1", "W3", "W4"]
TIMES_SHARE = 2.0  # a run may take this many times its share of the time that is left
HEADINGS = ["workload", "implementation", "step ms", "of torch_xla's", "first s", "host ms", "check"]
EAGER = ["--impl", "custom", "--device", "cuda", "--wait", "torch.cuda.synchronize"]
# The arguments of the harness's run.py. Its own names eager, inductor and jax mean the CPU.
IMPLEMENTATIONS = {
    "CUDA": {
        "torch_xla": ["--impl", "xla"],
        "torch eager": EAGER,
        "torch.compile": [*EAGER, "--pre", "comp = torch.compile"],
        "JAX": ["--impl", "jax"],
    },
    "LIBRARY": {
        "torch_xla": ["--impl", "xla"],
        "torch eager": ["--impl", "eager"],
        "torch.compile": ["--impl", "inductor"],
        "JAX": ["--impl", "jax"],
    },
}
# run.py asks for the CPU just before it imports JAX; JAX that is imported and started before keeps to the GPU.
JAX_FIRST = """
import jax, os, runpy, sys
jax.devices("cuda")
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def command(device: str, name: str, workload: str, harness: Path, peer_python: str) -> list:
    """The command line that prints one line of JSON."""
    python = [sys.executable if name == "torch_xla" else peer_python]
    if device == "CUDA" and name == "JAX":
        python += ["-c", JAX_FIRST]
    arguments = [*IMPLEMENTATIONS[device][name], "--workload", workload, "--seconds", "1"]
    return [*python, harness / "run.py", *arguments]


def read_result(text: str) -> dict | None:
    """The line of JSON that run.py prints, among what else was printed."""
    lines = [line for line in text.splitlines() if line.startswith("{") and "median_ms" in line]
    return json.loads(lines[-1]) if lines else None


def measure(arguments: list, seconds: float, env: dict) -> dict | str:
    """What run.py measured, or why it measured nothing."""
    if seconds < 5:
        return "not run: no time left"
    done = run(arguments, seconds, env)
    if done.status is None:
        return f"cut after {seconds:.0f} s"
    return read_result(done.text) or done.last_line()


def row(workload: str, name: str, result: dict | str, base: dict | str | None) -> str:
    """A line of the table."""
    if isinstance(result, str):
        return f"| {workload} | {name} | {result} | | | | |"
    ratio = f"{result['median_ms'] / base['median_ms']:.2f}" if isinstance(base, dict) else "-"
    cells = [f"{result['median_ms']:.3f}", ratio, f"{result['first_step_s']:.2f}", f"{result['host_ms']:.3f}"]
    return f"| {workload} | {name}, {result['ver']} | {' | '.join(cells)} | {result['check2']:.6g} |"


def copy_harness(harness: str, scratch: str) -> Path:
    """A copy: the harness writes the first weights beside itself."""
    copy = Path(scratch) / "harness"
    shutil.copytree(harness, copy, ignore=shutil.ignore_patterns("results", "__pycache__"))
    return copy


def table(device: str, harness: str, peer_python: str, seconds: float, env: dict) -> tuple[str, list[str]]:
    """The table, and the workloads on which torch_xla itself failed."""
    end, runs_left = time.monotonic() + seconds, len(WORKLOADS) * len(IMPLEMENTATIONS[device])
    lines = [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        copy = copy_harness(harness, scratch)
        env = {**env, "TORCHINDUCTOR_CACHE_DIR": os.path.join(scratch, "inductor")}
        for workload in WORKLOADS:
            results = {}
            for name in IMPLEMENTATIONS[device]:
                print(f"  {workload}: {name}", file=sys.stderr, flush=True)
                arguments = command(device, name, workload, copy, peer_python)
                limit = TIMES_SHARE * (end - time.monotonic()) / runs_left
                runs_left -= 1
                results[name] = measure(arguments, limit, env)
                lines.append(row(workload, name, results[name], results["torch_xla"]))
            if isinstance(results["torch_xla"], str):
                failed.append(f"{workload}: {results['torch_xla']}")
    return "\n".join(lines), failed
