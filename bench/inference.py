"""Writes docs/inference.md and its picture: inference on the CPU beside the programs that others use for it.

    PYTHONPATH=FOLDER LLAMA_CPP_LIBS=FOLDER python bench/inference.py --values FILE --page docs/inference.md

Warm processes take turns, on one core, on two threads, and on two threads beside two processes that compute without
end. A peer that is not installed has dashes. `pip install --no-deps --target FOLDER openvino openvino-telemetry
onnxruntime onnx llama-cpp-py-sync gguf cffi` installs peers; LLAMA_CPP_LIBS has llama.cpp's libraries, as
`npm pack @node-llama-cpp/linux-x64` gives them in bins/linux-x64. --values keeps what was measured: later calls
measure only the --programs that they name, and write the page of all.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from compare import Busy
from compare_page import OWN
from inference_page import page, PEERS, plot
from inference_programs import NAMES, Program, PROMPT
from pages import load, make_parser, show, WARM_MALLOC

IMPLEMENTATIONS = (*OWN, *PEERS)
SETTINGS = {"one core": (1, 0), "two threads": (2, 0), "busy": (2, 2)}  # threads, busy processes
WORKER = Path(__file__).with_name("inference_worker.py")
BUFFER = 1 << 29  # bytes that no cache holds
PATIENCE = 300  # seconds for a first step


class Worker:
    """A process of inference_worker.py. `reason`: why it cannot run the program, or empty."""

    def __init__(self, impl: str, name: str, threads: int, small: bool):
        more = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} if threads == 1 else {}
        if impl not in OWN:
            more["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        command = [sys.executable, str(WORKER), impl, name, str(threads), *(["small"] if small else [])]
        if threads == 1:
            command = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, env={**os.environ, **WARM_MALLOC, **more}, **pipes)
        self.samples: dict[str, list[float]] = {}
        line = self._process.stdout.readline()
        self.reason = json.loads(line).get("reason", "") if line else "it ended"

    def turn(self, seconds: float) -> None:
        """Measures for so long."""
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        for clock, samples in json.loads(self._process.stdout.readline()).items():
            self.samples.setdefault(clock, []).extend(samples)

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(60)


def measure(name: str, options: argparse.Namespace) -> dict[str, dict]:
    """By setting and implementation: milliseconds of a step, or the reason why there are none."""
    found: dict[str, dict] = {setting: {} for setting in options.settings}
    for threads in {SETTINGS[setting][0] for setting in options.settings}:
        workers = {impl: Worker(impl, name, threads, options.small) for impl in options.impls}
        able = [worker for worker in workers.values() if not worker.reason]
        for setting in options.settings:
            if SETTINGS[setting][0] != threads:
                continue
            with Busy(SETTINGS[setting][1]):
                for worker in able:
                    worker.turn(options.seconds / 2)  # used to the load
                    worker.samples.clear()
                for _ in range(options.rounds):
                    for worker in able:
                        worker.turn(options.seconds)
            for impl, worker in workers.items():
                found[setting][impl] = worker.reason or choose(worker.samples, threads)
        for worker in workers.values():
            worker.close()
    return found


def choose(samples: dict[str, list[float]], threads: int) -> float:
    """On one core the least processor time, which others disturb little; else the median by the clock."""
    return min(samples["cpu"]) if threads == 1 else statistics.median(samples["wall"])


def memory_speed(threads: int) -> float:
    """Bytes a second that a loop over large memory reads, the best of some turns."""
    command = [sys.executable, "-c", READ, str(threads), str(BUFFER)]
    if threads == 1:
        command = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


READ = """
import os, sys, time
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
threads = int(sys.argv[1])
torch.set_num_threads(threads)
x, seconds, clock = torch.ones(int(sys.argv[2]) // 4), [], time.process_time if threads == 1 else time.perf_counter
for read in (x.sum, x.amax, lambda: torch.dot(x, x)):
    for _ in range(8):
        start = clock()
        read()
        seconds.append(clock() - start)
print(x.nbytes / min(seconds))
"""


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = make_parser(__doc__)

    def names(all_names: tuple[str, ...]) -> Callable[[str], list[str]]:
        def split(text: str) -> list[str]:
            chosen = text.split(",")
            if unknown := set(chosen) - set(all_names):
                raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: there are {', '.join(all_names)}")
            return chosen

        return split

    for option, values in (("programs", tuple(NAMES)), ("impls", IMPLEMENTATIONS), ("settings", tuple(SETTINGS))):
        parser.add_argument(f"--{option}", type=names(values), default=list(values), help=f"of {', '.join(values)}")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn")
    parser.add_argument("--values", type=Path, help="where what was measured is kept, as JSON")
    parser.add_argument("--small", action="store_true", help="a small decoder, for tests")
    return parser.parse_args()


def bytes_of(name: str, small: bool) -> int | None:
    """What a token reads: all weights but the embedding's, and the cache up to its place."""
    program = Program(name, small)
    if program.model != "decode":
        return None
    sizes = program.sizes
    shared = 2 * sizes.num_key_value_heads * sizes.head_size
    layer = sizes.hidden_size * (2 * sizes.hidden_size + shared + 3 * sizes.intermediate_size)
    weights = sizes.num_hidden_layers * layer + sizes.vocab_size * sizes.hidden_size
    of_weight = {"float32": 4, "bfloat16": 2, "int8": 1, "int4": 0.5 + 4 / 32}[program.form]
    of_cache = 4 if program.form == "float32" else 2
    cache = sizes.num_hidden_layers * shared * PROMPT["decode"]
    return int(weights * of_weight + cache * of_cache)


def main() -> int:
    """Measures, prints and writes the page."""
    options = read_options()
    kept = json.loads(options.values.read_text(encoding="utf-8")) if options.values and options.values.exists() else {}
    kept.setdefault("programs", {})
    before = load()
    known = kept.get("speed", {})
    kept["speed"] = {count: max(known.get(count, 0), memory_speed(int(count))) for count in ("1", "2")}
    for name in options.programs:
        print(name, file=sys.stderr, flush=True)
        for setting, found in measure(name, options).items():
            kept["programs"].setdefault(name, {}).setdefault(setting, {}).update(found)
        if options.values:
            options.values.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    kept["programs"] = {name: kept["programs"][name] for name in NAMES if name in kept["programs"]}
    read = {name: bytes_of(name, options.small) for name in kept["programs"]}
    show(page(kept, read, options, before), options.page)
    if options.page:
        plot(kept["programs"], options.page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
