"""Runs one workload of a harness on the device `xla`, for engines.py: engines_worker.py HARNESS WORKLOAD.

Prints a line of JSON on the first steps; then, for each line of seconds on stdin, a line with samples.
"""

import json
import os
import resource
import sys
import time

CHECK_STEPS = 3
SAMPLE_SECONDS = 0.1  # a sample is as many steps as take this long, then one wait


def build_step(harness: str, workload: str):
    """The workload's step on the device, and the function that waits for it."""
    import torch_xla
    import torch_xla.core.xla_model as xm

    sys.path.insert(0, harness)
    import workloads

    step = workloads.REG[workload].build("xla")
    step.export = None  # CPU copies of the first weights

    def once():
        result = step()
        torch_xla.sync()
        return result

    return once, xm.wait_device_ops


def weighted_sum(result) -> float:
    """One number that tells apart results that differ in order as well."""
    import torch

    values = result.detach().cpu().double().reshape(-1)
    weights = torch.cos(torch.arange(values.numel(), dtype=torch.float64) * 0.7)
    return (values * weights).sum().item()


def counts() -> tuple[int, int, set[str]]:
    """Programs run, programs compiled, operations that fell back to the CPU, since the process began."""
    import torch_xla.debug.metrics as met

    runs = met.metric_data("ExecuteTime")
    fallbacks = set(met.executed_fallback_ops()) - {"aten::_local_scalar_dense"}
    return runs[0] if runs else 0, met.counter_value("UncachedCompile") or 0, fallbacks


def broken_rules(once, wait) -> list[str]:
    """What three more steps do that warm steps must not do."""
    runs, compiles, _ = counts()
    for _ in range(CHECK_STEPS):
        once()
        wait()
    runs_after, compiles_after, fallbacks = counts()
    broken = []
    if runs_after - runs != CHECK_STEPS:
        broken.append(f"{runs_after - runs} programs in {CHECK_STEPS} steps")
    if compiles_after > compiles:
        broken.append(f"{compiles_after - compiles} compiled after step {CHECK_STEPS}")
    if fallbacks:
        broken.append(f"fallbacks: {', '.join(sorted(fallbacks))}")
    return broken


def cpu_seconds() -> tuple[float, float]:
    """Time of all processors that was spent at work, by anyone, and by this process."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    own = resource.getrusage(resource.RUSAGE_SELF)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime


def sample(once, wait, steps: int) -> tuple[float, float]:
    """Milliseconds of a step, and the share of the processors that other processes took meanwhile."""
    all_before, own_before = cpu_seconds()
    start = time.perf_counter()
    for _ in range(steps):
        once()
    wait()
    seconds = time.perf_counter() - start
    all_after, own_after = cpu_seconds()
    others = (all_after - all_before) - (own_after - own_before)
    return seconds * 1e3 / steps, max(0.0, others / (seconds * os.cpu_count()))


def measure(once, wait, seconds: float) -> list[tuple[float, float]]:
    """Samples for about `seconds`."""
    start = time.perf_counter()
    once()
    wait()
    steps = max(1, int(SAMPLE_SECONDS / (time.perf_counter() - start)))
    samples, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        samples.append(sample(once, wait, steps))
    return samples


def serve(harness: str, workload: str) -> None:
    """Prints what the first steps told, then a line of samples for each line of seconds on stdin."""
    once, wait = build_step(harness, workload)
    start = time.perf_counter()
    result = once()
    wait()
    first = time.perf_counter() - start
    for _ in range(CHECK_STEPS - 1):
        result = once()
    info = {"first_s": first, "check": weighted_sum(result)}
    info["broken"] = broken_rules(once, wait)
    print(json.dumps(info), flush=True)
    for line in sys.stdin:
        samples = measure(once, wait, float(line))
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps({"samples": samples, "peak_mb": peak_mb}), flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
