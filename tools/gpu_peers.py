"""Times training steps of a harness on the device `xla` and on its peers, for gpu_check.py: one Markdown table."""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from gpu_process import Worker

WORKLOADS = ["W1", "W3", "W4"]
START_SHARE = 0.8  # of the time, for starting and warming up; the rest is measured in
ROUNDS = 3
MOST_SECONDS = 10.0  # that a process may take for a round
MEMORY_ON_DEMAND = {"PJRT_ALLOCATOR_PREALLOCATE": "0", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # they share the GPU
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
    """The command line of a process that prints a line of JSON when it is warm, and one for each line `go SECONDS`."""
    python = [sys.executable if name == "torch_xla" else peer_python]
    if device == "CUDA" and name == "JAX":
        python += ["-c", JAX_FIRST]
    return [*python, harness / "run.py", *IMPLEMENTATIONS[device][name], "--workload", workload, "--serve"]


def read_json(worker: Worker, seconds: float) -> dict | str:
    """The next line of JSON that the process prints, or why there is none."""
    end = time.monotonic() + seconds
    while line := worker.read_line(end - time.monotonic()):
        if line.startswith("{"):
            return json.loads(line)
    return f"not ready after {seconds:.0f} s" if worker.is_running() else worker.last_line()


def measure(worker: Worker, result: dict) -> dict | str:
    """`result` with the median of a round added to its "ms"; or why it measured nothing."""
    worker.write_line("go 0.5")
    answer = read_json(worker, MOST_SECONDS)
    return answer if isinstance(answer, str) else {**result, "ms": [*result.get("ms", []), median(answer["ms"])]}


def row(workload: str, name: str, result: dict | str, base: dict | str | None) -> str:
    """A line of the table."""
    if isinstance(result, str):
        return f"| {workload} | {name} | {result} | | | | |"
    ms = median(result["ms"])
    ratio = f"{ms / median(base['ms']):.2f}" if isinstance(base, dict) else "-"
    cells = [f"{ms:.3f}", ratio, f"{result['first_step_s']:.2f}", f"{result['host_ms']:.3f}"]
    return f"| {workload} | {name}, {result['ver']} | {' | '.join(cells)} | {result['check2']:.6g} |"


def copy_harness(harness: str, scratch: str) -> Path:
    """A copy: the harness writes the first weights beside itself."""
    copy = Path(scratch) / "harness"
    shutil.copytree(harness, copy, ignore=shutil.ignore_patterns("results", "__pycache__"))
    return copy


def start_all(stack, device: str, harness: Path, peer_python: str, seconds: float, env: dict) -> tuple[dict, dict]:
    """Processes by (workload, implementation), and what each printed when it was warm, or why it is not."""
    workers, results, names = {}, {}, list(IMPLEMENTATIONS[device])
    end = time.monotonic() + seconds
    peer_env = {name: value for name, value in env.items() if name != "PYTHONPATH"}  # another Python's packages
    for i, name in enumerate(names):
        until = time.monotonic() + (end - time.monotonic()) / (len(names) - i)
        for workload in WORKLOADS:
            arguments = command(device, name, workload, harness, peer_python)
            chosen = env if arguments[0] == sys.executable else peer_env
            workers[workload, name] = stack.enter_context(Worker(arguments, chosen))
        for workload in WORKLOADS:
            print(f"  {workload}: {name}", file=sys.stderr, flush=True)
            results[workload, name] = read_json(workers[workload, name], max(0, until - time.monotonic()))
    return workers, results


def measure_all(device: str, harness: Path, peer_python: str, seconds: float, env: dict) -> dict:
    """What was measured, by (workload, implementation): processes that stay are warmed up, then asked in turn."""
    with contextlib.ExitStack() as stack:
        workers, results = start_all(stack, device, harness, peer_python, seconds * START_SHARE, env)
        for key, result in results.items():
            if isinstance(result, str):
                workers[key].stop()  # it would go on warming up beside the others' rounds
        for _ in range(ROUNDS):
            for key, result in results.items():
                if isinstance(result, dict):
                    results[key] = measure(workers[key], result)
        return results


def table(device: str, harness: str, peer_python: str, seconds: float, env: dict) -> tuple[str, list[str]]:
    """The table, and the workloads for which torch_xla itself has no time, with the reason."""
    with tempfile.TemporaryDirectory() as scratch:
        env = {**env, **MEMORY_ON_DEMAND, "TORCHINDUCTOR_CACHE_DIR": os.path.join(scratch, "inductor")}
        results = measure_all(device, copy_harness(harness, scratch), peer_python, seconds, env)
    lines = [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    for workload in WORKLOADS:
        base = results[workload, "torch_xla"]
        lines += [row(workload, name, results[workload, name], base) for name in IMPLEMENTATIONS[device]]
    own = {workload: results[workload, "torch_xla"] for workload in WORKLOADS}
    return "\n".join(lines), [f"{workload}: {why}" for workload, why in own.items() if isinstance(why, str)]
