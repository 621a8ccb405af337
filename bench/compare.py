"""Compares this device with its peers on steps of training and inference: warm processes that take turns.

    python bench/compare.py --impls xla,replay,eager,inductor,jax --workloads mlp,gpt --rounds 5 --busy 0,2

Implementations: xla, replay (this device too, by torch_xla.compile(step, replay=True)), eager, inductor (torch.compile
on the CPU) and jax (for some programs).
Each runs in a process of its own, with warm malloc and an empty compile cache, and starts from the same numbers
(workloads.py, jax_workloads.py). --busy: beside so many processes that compute without end. --page writes the
processor's part of a page, with a plot beside it; --baseline compares with the values of an earlier run that --values
has written.
"""

import argparse
import functools
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from compare_page import HEAD, OWN, page, plot, slower
from pages import load, make_parser, show_part, WARM_MALLOC

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from setup_libraries import find_python, is_ready
from workloads import find, IN_JAX, WORKLOADS

IMPLEMENTATIONS = (*OWN, "eager", "inductor", "jax")
SAMPLE_S = 0.05  # a sample is as many steps as take about so long, with one wait at their end


# ---- One implementation, in a process of its own ----


def _counted_work(step) -> dict[str, float]:
    """What a step of eager must do at least.

    "flops": floating-point operations of its products, those of recurrent layers too, and convolutions. "bytes": of
    memory that is there before the step and that it reads or writes, each once a way, and of its result.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import flop_registry

    class Counter(TorchDispatchMode):
        flops = 0.0

        def __init__(self):
            super().__init__()
            self.made: dict[int, torch.UntypedStorage] = {}  # in this step; kept, so that no address comes twice
            self.moved: dict[tuple[int, bool], int] = {}

        def note(self, operands: object, written: bool) -> None:
            memories = [t.untyped_storage() for t in tree_leaves(operands) if isinstance(t, torch.Tensor)]
            there = [memory for memory in memories if memory.data_ptr() not in self.made]
            self.moved.update({(memory.data_ptr(), written): memory.nbytes() for memory in there})

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            self.note((args, kwargs), written=False)
            for i, argument in enumerate(func._schema.arguments):
                if argument.alias_info and argument.alias_info.is_write:
                    self.note(args[i] if i < len(args) else kwargs.get(argument.name), written=True)
            there = {pointer for pointer, _ in self.moved}
            result = func(*args, **kwargs)
            for t in tree_leaves(result):
                if isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() not in there:
                    self.made[t.untyped_storage().data_ptr()] = t.untyped_storage()
            if func.overloadpacket in flop_registry:
                self.flops += flop_registry[func.overloadpacket](*args, **kwargs, out_val=result)
            return result

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the flags that are left as they are
        with Counter() as counter, torch.backends.mkldnn.flags(enabled=False):  # recurrent layers as products
            result = step()
    return {"flops": counter.flops, "bytes": sum(counter.moved.values()) + result.untyped_storage().nbytes()}


def _keep_steps_on_the_device() -> None:
    """What is replayed must not count steps in Python: optimizers of this process are capturable."""
    for name in ("Adam", "AdamW"):
        setattr(torch.optim, name, functools.partial(getattr(torch.optim, name), capturable=True))


def build(impl: str, workload: str, threads: int):
    """One step, what follows each, and a wait for the result of the last."""
    nothing = lambda *_: None  # noqa: E731
    torch.manual_seed(0)
    if impl == "jax":
        import jax_workloads

        step = jax_workloads.WORKLOADS[workload]()
        return step, nothing, lambda result: result.block_until_ready()
    torch.set_num_threads(threads)
    if impl in OWN:
        import torch_xla
        import torch_xla.core.xla_model as xm

        if impl == "replay":
            _keep_steps_on_the_device()
        step = find(workload)("xla", lambda model: model)
        wait = lambda result: xm.wait_device_ops()  # noqa: E731
        return (step, torch_xla.sync, wait) if impl == "xla" else (torch_xla.compile(step, replay=True), nothing, wait)
    wrap = torch.compile if impl == "inductor" else lambda model: model
    return find(workload)("cpu", wrap), nothing, nothing


def _peak_mb() -> float:
    """The most resident memory of this program; getrusage() would count what the process was before it, too."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def serve(impl: str, workload: str, threads: int) -> None:
    """Prints a line about the first steps, then answers numbers of seconds on stdin by lines of samples in ms.

    "work" on stdin is answered by a line of _counted_work(), after which memory is no longer as before.
    """
    import numpy as np

    step, follow, wait = build(impl, workload, threads)

    def run(count: int):
        """That many steps; the last one's result and the seconds for each."""
        start = time.perf_counter()
        for _ in range(count):
            result = step()
            follow()
        wait(result)
        return result, (time.perf_counter() - start) / count

    def host_ms() -> float:
        """Of one step with nobody before it: until the caller goes on, while the device runs it."""
        start = time.perf_counter()
        result = step()
        follow()
        passed = time.perf_counter() - start
        wait(result)
        return passed * 1e3

    first = run(1)[1]
    result, each = run(2)
    result = result.double().cpu() if isinstance(result, torch.Tensor) else result
    values = np.asarray(result, dtype=np.float64).ravel()
    check = float((values * np.linspace(0.5, 1.5, values.size)).mean())
    info = {"check": check, "first_s": first}
    if impl in OWN:
        info["host_ms"] = statistics.median(host_ms() for _ in range(9))
    print(json.dumps(info), flush=True)
    for line in sys.stdin:
        if line == "work\n":
            print(json.dumps(_counted_work(step)), flush=True)
            continue
        samples, end = [], time.perf_counter() + float(line)
        while time.perf_counter() < end or not samples:
            each = run(max(1, int(SAMPLE_S / each)))[1]
            samples.append(each * 1e3)
        print(json.dumps({"samples": samples, "peak_mb": _peak_mb()}), flush=True)


class EndedError(Exception):
    """A worker's process has ended; it has told on stderr why."""


class GaveUpError(Exception):
    """An implementation has not made its first steps, or not in the time that it was given."""


class Worker:
    """A process that serves. `info`: its first line; `samples`: times of all turns by the number of busy processes."""

    def __init__(self, impl: str, workload: str, python: str, options: argparse.Namespace):
        self._cache = tempfile.TemporaryDirectory(prefix="bench_")
        caches = {"XLA_PERSISTENT_CACHE_PATH": self._cache.name, "TORCHINDUCTOR_CACHE_DIR": self._cache.name}
        command = [python, os.path.abspath(__file__), "--serve", impl, "--workloads", workload]
        command += ["--threads", str(options.threads)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, env={**os.environ, **WARM_MALLOC, **caches}, **pipes)
        self.samples: dict[int, list[float]] = {}
        self.peak_mb = 0.0
        if not select.select([self._process.stdout], [], [], options.patience)[0]:
            self._process.kill()
            raise GaveUpError(f"{impl}: no first step in {options.patience:g} s")
        try:
            self.info = self._read()
        except EndedError:
            raise GaveUpError(f"{impl}: cannot run it") from None

    def _read(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise EndedError(f"{' '.join(self._process.args[2:6])} ended with {self._process.wait()}; see above")
        return json.loads(line)

    def ask(self, line: str) -> dict:
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._read()

    def turn(self, busy: int, seconds: float) -> None:
        answer = self.ask(f"{seconds}")
        self.samples.setdefault(busy, []).extend(answer["samples"])
        self.peak_mb = answer["peak_mb"]

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(60)
        self._cache.cleanup()


# ---- Taking turns ----


class Busy:
    """So many processes that compute without end, while it is open."""

    def __init__(self, count: int):
        self._processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._processes:
            process.kill()
            process.wait()


def start(workload: str, options: argparse.Namespace) -> tuple[dict[str, Worker], dict[str, dict]]:
    """A worker for each implementation, and the texts of those that gave up."""
    workers, gave_up = {}, {}
    for impl in options.impls:
        if impl == "jax" and workload not in IN_JAX:
            continue
        try:
            python = options.jax if impl == "jax" else sys.executable
            workers[impl] = Worker(impl, workload, python, options)
        except GaveUpError as error:
            gave_up[impl] = {"gave_up": str(error)}
    return workers, gave_up


def measure(workload: str, options: argparse.Namespace) -> dict[str, dict]:
    """What was measured, by implementation."""
    workers, gave_up = start(workload, options)
    for busy in options.busy:
        with Busy(busy):
            for worker in workers.values():
                worker.turn(busy, 0.5)  # used to the load
                worker.samples[busy].clear()
            for _ in range(options.rounds):
                for worker in workers.values():
                    worker.turn(busy, options.seconds)
    if "eager" in workers:
        workers["eager"].info |= workers["eager"].ask("work")
    for worker in workers.values():
        worker.close()
    return gave_up | {
        impl: {
            **worker.info,
            "peak_mb": worker.peak_mb,
            "ms": {str(busy): statistics.median(samples) for busy, samples in worker.samples.items()},
        }
        for impl, worker in workers.items()
    }


def _best_time(call) -> float:
    """Seconds of the fastest of some calls."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    times = []
    for _ in range(8):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_flops() -> float:
    """Floating-point operations a second in a large product of float32."""
    a, b = torch.randn(2048, 1024), torch.randn(1024, 2048)
    return 2 * 2048 * 1024 * 2048 / _best_time(lambda: a @ b)


def peak_bytes() -> float:
    """Bytes a second, read and written, in a sum of large tensors."""
    a, b, c = torch.ones(3, 1 << 25).unbind()  # 128 MB each, which no cache holds
    return 3 * a.nbytes / _best_time(lambda: torch.add(a, b, out=c))


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = make_parser(__doc__)
    jax = str(find_python("jax")) if is_ready("jax") else None
    usual = ",".join(impl for impl in IMPLEMENTATIONS if impl != "jax" or jax)
    parser.add_argument("--impls", default=usual, help=f"of {', '.join(IMPLEMENTATIONS)}; default: %(default)s")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn")
    parser.add_argument("--busy", default="0", help="numbers of busy processes, one after the other; default: none")
    parser.add_argument("--threads", type=int, help="that PyTorch is asked for; default: one for each processor")
    parser.add_argument("--patience", type=float, default=120, help="seconds for the first steps; default: %(default)s")
    parser.add_argument("--jax", default=jax, help="a Python with JAX and torch; default: that of make test-libraries")
    parser.add_argument("--values", type=Path, help="where what was measured is written, as JSON")
    parser.add_argument("--baseline", type=Path, help="such a file: exit status 1 if something became slower")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.threads = options.threads or len(os.sched_getaffinity(0))
    options.impls, options.workloads = options.impls.split(","), options.workloads.split(",")
    options.busy = [int(count) for count in options.busy.split(",")]
    if unknown := set(options.impls) - set(IMPLEMENTATIONS):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(IMPLEMENTATIONS)}")
    try:
        for workload in options.workloads:
            find(workload)
    except ValueError as error:
        parser.error(str(error))
    if "xla" not in options.impls:
        parser.error("--impls has no xla, which the others are compared with")
    if "jax" in options.impls and not options.jax:
        parser.error("no Python with JAX: name one by --jax, or run make test-libraries once, which makes one")
    return options


def main() -> int:
    """Measures and prints the page; returns the exit status."""
    options = read_options()
    if options.serve:
        serve(options.serve, options.workloads[0], options.threads)
        return 0
    before, options.peak_flops, options.peak_bytes = load(), peak_flops(), peak_bytes()
    measured = {}
    for workload in options.workloads:
        print(workload, file=sys.stderr, flush=True)
        measured[workload] = measure(workload, options)
    show_part(HEAD, page(measured, options, before), options.page)
    if options.page:
        plot(measured, options)
    if options.values:
        options.values.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    lines = slower(measured, json.loads(options.baseline.read_text(encoding="utf-8"))) if options.baseline else []
    print("\n".join(lines), end="\n" * bool(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
