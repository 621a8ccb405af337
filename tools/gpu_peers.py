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
TIMES_SHARE = 3.0  # a run may take this many times its share of the time that is left
HEADINGS = ["workload", "implementation", "step ms", "of torch_xla's", "first s", "host ms", "check"]
EAGER = ["--impl", "custom", "--device", "cuda", "--wait", "torch.cuda.synchronize"]
# The arguments of the harness's run.py. Its own names eager, inductor and jax mean the CPU.
IMPLEMENTATIONS = {
    "CUDA": {
        "torch_xla": ["--impl", "xla"],
        "torch eager": EAGER,
        "JAX": ["--impl", "jax"],
        "torch.compile": [*EAGER, "--pre", "comp = torch.compile"],
    },
    "LIBRARY": {
        "torch_xla": ["--impl", "xla"],
        "torch eager": ["--impl", "eager"],
        "JAX": ["--impl", "jax"],
        "torch.compile": ["--impl", "inductor"],
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
    result = read_result(done.text)
    if done.status is None:  # its end may hang after the measurement
        return result or f"cut after {seconds:.0f} s"
    return done.last_line() if done.status or not result else result


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


def measure_all(device: str, harness: Path, peer_python: str, seconds: float, env: dict) -> dict:
    """What `measure` gave, by (workload, implementation); the implementations follow one another, torch_xla first."""
    pairs = [(workload, name) for name in IMPLEMENTATIONS[device] for workload in WORKLOADS]
    results, end = {}, time.monotonic() + seconds
    peer_env = {name: value for name, value in env.items() if name != "PYTHONPATH"}  # another Python's packages
    for workload, name in pairs:
        print(f"  {workload}: {name}", file=sys.stderr, flush=True)
        share = min(1, TIMES_SHARE / (len(pairs) - len(results)))
        arguments = command(device, name, workload, harness, peer_python)
        chosen = env if arguments[0] == sys.executable else peer_env
        results[workload, name] = measure(arguments, (end - time.monotonic()) * share, chosen)
    return results


def table(device: str, harness: str, peer_python: str, seconds: float, env: dict) -> tuple[str, list[str]]:
    """The table, and the workloads for which torch_xla itself has no time, with the reason."""
    with tempfile.TemporaryDirectory() as scratch:
        env = {**env, "TORCHINDUCTOR_CACHE_DIR": os.path.join(scratch, "inductor")}
        results = measure_all(device, copy_harness(harness, scratch), peer_python, seconds, env)
    lines = [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    for workload in WORKLOADS:
        base = results[workload, "torch_xla"]
        lines += [row(workload, name, results[workload, name], base) for name in IMPLEMENTATIONS[device]]
    own = {workload: results[workload, "torch_xla"] for workload in WORKLOADS}
    return "\n".join(lines), [f"{workload}: {why}" for workload, why in own.items() if isinstance(why, str)]
