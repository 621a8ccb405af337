"""The ensemble of PyTorch's tutorial on torch.jit.fork in its three forms, on eager PyTorch and on the device `xla`.

Eager runs LSTMs beside each other only where the program forks them. The device records them all and runs one program,
whatever the form. The Chrome traces show it (chrome://tracing, ui.perfetto.dev).

    python examples/lstm_ensemble.py [--device xla|cpu] [--sizes T B C] [--rounds 5] [--out results/lstm_ensemble]
"""

import argparse
import multiprocessing
import os
import statistics
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn
from torch.profiler import profile

import torch_xla


# ---- The models ----
class Bidirectional(nn.Module):
    """Two LSTMs on one sequence, the second one from its end."""

    def __init__(self, channels: int):
        super().__init__()
        self.cell_f = nn.LSTM(input_size=channels, hidden_size=channels)
        self.cell_b = nn.LSTM(input_size=channels, hidden_size=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float32[T, B, 2 * channels] of a sequence float32[T, B, channels]."""
        x = x.to(self.cell_f.weight_ih_l0.device)
        output_f, _ = self.cell_f(x)
        output_b, _ = self.cell_b(torch.flip(x, dims=[0]))
        return torch.cat((output_f, torch.flip(output_b, dims=[0])), dim=2)


class ForkedBidirectional(Bidirectional):
    """The first LSTM is a task."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As in the base class."""
        x = x.to(self.cell_f.weight_ih_l0.device)
        future_f = torch.jit.fork(self.cell_f, x)
        output_b, _ = self.cell_b(torch.flip(x, dims=[0]))
        output_b_rev = torch.flip(output_b, dims=[0])
        output_f, _ = torch.jit.wait(future_f)
        return torch.cat((output_f, output_b_rev), dim=2)


class Ensemble(nn.Module):
    """The sum of some such modules."""

    def __init__(self, part: type[Bidirectional], channels: int, count: int = 4):
        super().__init__()
        self.models = nn.ModuleList([part(channels) for _ in range(count)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the modules return, summed."""
        results = []
        for model in self.models:
            results.append(model(x))
        return torch.stack([result.to(x.device) for result in results]).sum(dim=0)


class ForkedEnsemble(Ensemble):
    """Each module is a task, which has tasks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As in the base class."""
        futures = [torch.jit.fork(model, x) for model in self.models]
        results = [torch.jit.wait(future) for future in futures]
        return torch.stack([result.to(x.device) for result in results]).sum(dim=0)


FORMS = {
    "plain loop": (Ensemble, Bidirectional),
    "forked layers": (Ensemble, ForkedBidirectional),
    "forked models and layers": (ForkedEnsemble, ForkedBidirectional),
}


def make(form: str, channels: int) -> Ensemble:
    """The ensemble in one of its forms; the weights are the same in all."""
    ensemble, part = FORMS[form]
    torch.manual_seed(0)
    return ensemble(part, channels)


def place(ensemble: Ensemble, devices: list[str]) -> Ensemble:
    """Moves its modules to the devices, one after the other."""
    for number, model in enumerate(ensemble.models):
        model.to(devices[number % len(devices)])
    return ensemble


# ---- One form on one device, in a process of its own ----
class Worker:
    """A process that has the script and its input. Threads that eager has used for one form would slow the next one."""

    def __init__(self, device: str, form: str, sizes: tuple[int, int, int], num_devices: int):
        self._process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        self._ready = self._process.submit(prepare, device, form, sizes, num_devices)

    def call(self, function, *args):
        """What the function returns there."""
        self._ready.result()
        return self._process.submit(function, *args).result()

    def close(self) -> None:
        """Ends the process."""
        self._process.shutdown()


script: torch.jit.ScriptModule
x: torch.Tensor


def prepare(device: str, form: str, sizes: tuple[int, int, int], num_devices: int) -> None:
    """Makes the script and its input, and runs the first times: the device compiles, TorchScript specializes."""
    global script, x
    warnings.filterwarnings("ignore", ".*torch.jit.*deprecated", DeprecationWarning)
    devices = [f"xla:{number}" for number in range(num_devices)] if device == "xla" else [device]
    script = torch.jit.script(place(make(form, sizes[2]), devices).eval())
    x = torch.rand(sizes).to(devices[0])
    for _ in range(3):
        run()


@torch.no_grad()
def run() -> torch.Tensor:
    """The script's result, once it is there."""
    result = script(x)
    if x.device.type == "xla":
        torch_xla.sync(wait=True)
    return result


def measure() -> tuple[float, float]:
    """Seconds of a run, and of processors in it."""
    start, processors = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - start, time.process_time() - processors


def result_on_cpu() -> torch.Tensor:
    """For comparing."""
    return run().cpu()


def trace(path: Path) -> None:
    """Writes a Chrome trace of a run."""
    with profile() as profiler:
        run()
        time.sleep(0.1)  # threads of fork end their records after the results; the profiler does not wait for them
    profiler.export_chrome_trace(str(path))


# ---- All of them ----
def compare(workers: dict[tuple[str, str], Worker]) -> dict[tuple[str, str], float]:
    """The greatest difference of each result from that of the first worker; an error where it is more than rounding."""
    results = {case: worker.call(result_on_cpu) for case, worker in workers.items()}
    expected = next(iter(results.values()))
    for result in results.values():
        torch.testing.assert_close(result, expected)
    return {case: (result - expected).abs().max().item() for case, result in results.items()}


def take_turns(workers: dict[tuple[str, str], Worker], rounds: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Median seconds of each, and of its processors. What slows the machine for a while slows all."""
    times = {case: [] for case in workers}
    for _ in track(range(rounds), "measuring", transient=True):
        for case, worker in workers.items():
            times[case].append(worker.call(measure))
    return {case: tuple(map(statistics.median, zip(*runs))) for case, runs in times.items()}


def show(times: dict[tuple[str, str], tuple[float, float]], differences: dict[tuple[str, str], float]) -> None:
    """The table, and what the device gains."""
    table = Table("device", "form", "seconds", "of processors", "speed-up over the plain loop", "greatest difference")
    for case, (seconds, processors) in times.items():
        speed_up = times[case[0], "plain loop"][0] / seconds
        numbers = (f"{seconds:.4f}", f"{processors:.4f}", f"{speed_up:.2f}", f"{differences[case]:.1e}")
        table.add_row(*case, *numbers)
    Console(width=110).print(table)
    if ("xla", "plain loop") in times:
        mine = times["xla", "plain loop"][0]
        eager = min(seconds for (device, _), (seconds, _) in times.items() if device == "cpu")
        print(f"The plain loop takes {mine:.4f} s on xla, eager's fastest form {eager:.4f} s ({mine / eager:.2f} x)")


def main() -> None:
    """Reads the command line, measures, and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("xla", "cpu"), default="xla", help="cpu runs eager PyTorch only")
    parser.add_argument("--sizes", type=int, nargs=3, default=(50, 50, 1024), metavar=("T", "B", "C"))
    parser.add_argument("--num-devices", type=int, default=1, help="place the modules on xla:0, xla:1 ... in turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/lstm_ensemble"), help="folder of the traces")
    args = parser.parse_args()

    os.environ.setdefault("CPU_NUM_DEVICES", str(args.num_devices))
    devices = ("cpu", "xla") if args.device == "xla" else ("cpu",)
    cases = [(device, form) for device in devices for form in FORMS]
    workers = {case: Worker(*case, tuple(args.sizes), args.num_devices) for case in cases}
    differences = compare(workers)
    show(take_turns(workers, args.rounds), differences)
    args.out.mkdir(parents=True, exist_ok=True)
    for case, worker in workers.items():
        worker.call(trace, args.out / f"{'_'.join(case).replace(' ', '_')}.json")
        worker.close()
    print(f"Traces in {args.out}")


if __name__ == "__main__":
    main()
