"""Measures two replicas in two processes of one thread each: collectives, training steps and loaders, as a page.

    python bench/replicas.py --page docs/replicas_cost.md

What is compared takes turns in the same processes, and the ratio is that of the medians. Other work on the machine
changes the times and, where processors are few, the ratios too.
"""

import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from compare import WARM_MALLOC
from pages import load, load_line, machine, make_parser, show
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch_xla import _world, _XLAC

MEGABYTES = 25
HOST_SECONDS = 1e-3  # of work for a batch
STEPS = 10  # of a turn with a loader


def convnet() -> tuple[nn.Module, torch.Tensor]:
    """Four convolutions with batch norm and two products, 0.8 million parameters; 32 images of 64 x 64."""
    torch.manual_seed(0)
    layers, channels = [], 3
    for out in (32, 64, 128, 128):
        layers += [nn.Conv2d(channels, out, 3, 1, 1), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
        channels = out
    head = (nn.Flatten(), nn.Linear(128 * 4 * 4, 256), nn.ReLU(), nn.Linear(256, 10))
    return nn.Sequential(*layers, *head), torch.randn(32, 3, 64, 64)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    """Four encoder layers of 256 features, 3.2 million parameters; 8 sequences of 128."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(256, 8, 1024, 0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    return nn.Sequential(encoder, nn.Linear(256, 10)), torch.randn(8, 128, 256)


def wide() -> tuple[nn.Module, torch.Tensor]:
    """Eight products of 1024 features, 8.4 million parameters, which are 32 MB to average; 256 rows."""
    torch.manual_seed(0)
    layers = itertools.chain.from_iterable((nn.Linear(1024, 1024), nn.ReLU()) for _ in range(8))
    return nn.Sequential(*layers), torch.randn(256, 1024)


MODELS = (convnet, transformer, wide)


# ---- What takes turns ----
def all_reduces(group) -> dict[str, Callable[[], None]]:
    """Of 25 MB: gloo's own, of a tensor, and of a list in place."""
    count = MEGABYTES * 2**20 // 4
    on_cpu, on_device = torch.ones(count), torch.ones(count, device="xla")
    torch_xla.sync(wait=True)

    def gloo():
        group.allreduce([on_cpu]).wait()

    def tensor():
        xm.all_reduce(xm.REDUCE_MAX, on_device)
        torch_xla.sync(wait=True)

    def in_place():
        xm.all_reduce(xm.REDUCE_MAX, [on_device])
        torch_xla.sync(wait=True)

    return {"gloo": gloo, "a tensor": tensor, "a list in place": in_place}


def training(make: Callable) -> dict[str, Callable[[], None]]:
    """A step of SGD by DDP on the CPU, by optimizer_step(), and without averaging."""
    model, on_cpu = make()
    spread = nn.parallel.DistributedDataParallel(model)
    on_device = on_cpu.to("xla")
    ours, alone = make()[0].to("xla"), make()[0].to("xla")
    optimizers = {m: torch.optim.SGD(m.parameters(), lr=1e-4) for m in (spread, ours, alone)}

    def differentiate(model, batch):
        optimizers[model].zero_grad()
        model(batch).square().mean().backward()
        return optimizers[model]

    def ddp():
        differentiate(spread, on_cpu).step()

    def xla():
        xm.optimizer_step(differentiate(ours, on_device), barrier=True)
        xm.wait_device_ops()

    def without():
        differentiate(alone, on_device).step()
        torch_xla.sync(wait=True)

    return {"DDP": ddp, "xla": xla, "xla, no averaging": without}


def take_turns(calls: dict[str, Callable[[], None]], rounds: int, barrier: Callable[[], None]) -> dict[str, float]:
    """Median milliseconds of each call."""
    for call in calls.values():
        for _ in range(3):
            call()
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            barrier()
            start = time.perf_counter()
            call()
            samples[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(times) for name, times in samples.items()}


# ---- Overlap ----
def union_of(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The spans in their order, joined where they meet."""
    begin = end = None
    for start, stop in sorted(spans):
        if end is None or start > end:
            if end is not None:
                yield begin, end
            begin, end = start, stop
        end = max(end, stop)
    if end is not None:
        yield begin, end


def transfers_of(call: Callable[[], None], rounds: int) -> tuple[int, float, float]:
    """Collectives of a call, their milliseconds, and the share of these in which the program computes."""
    _XLAC._start_events()
    for _ in range(rounds):
        call()
    steps = [e for e in _XLAC._stop_events() if e["phase"] in ("kernel", "library", "update")]
    transfers, computing = [], []
    for event in steps:
        kind = transfers if event["name"].startswith("xla::") else computing
        if event["name"] != "wait":
            kind.append((event["start_ns"], event["end_ns"]))
    total = sum(end - start for start, end in transfers)
    both = sum(
        max(0, min(end, e) - max(start, s)) for s, e in union_of(computing) for start, end in union_of(transfers)
    )
    return len(transfers) // rounds, total / rounds / 1e6, both / max(total, 1)


def replica(rank: int, path: str, rounds: int) -> None:
    """One of the two processes; the first writes what was measured."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.PrefixStore("bench", _world.process().store), rank=rank, world_size=2)
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    found = {"all_reduce": take_turns(all_reduces(group), 2 * rounds, dist.barrier), "training": {}}
    for make in MODELS:
        calls = training(make)
        times = take_turns(calls, rounds, dist.barrier)
        dist.barrier()
        found["training"][make.__name__] = times, transfers_of(calls["xla"], 5)
    if rank == 0:
        Path(path).write_text(json.dumps(found), encoding="utf-8")
    xm.rendezvous("end")


# ---- Loaders ----
def batches_of(batch: torch.Tensor) -> Iterator[torch.Tensor]:
    """CPU batches, each after its host work."""
    for _ in range(STEPS):
        end = time.perf_counter() + HOST_SECONDS
        while time.perf_counter() < end:
            pass
        yield batch


def loaders(rounds: int) -> dict[str, float]:
    """Milliseconds of a step of the convolutional network whose data is there, and whose data a loader brings."""
    torch.set_num_threads(1)
    model, batch = convnet()
    model, on_device = model.to("xla"), batch.to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step(data):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        xm.optimizer_step(optimizer)

    def there():
        for _ in range(STEPS):
            step(on_device)
            xm.mark_step()
        xm.wait_device_ops()

    def loaded():
        for data in pl.MpDeviceLoader(batches_of(batch), "xla"):
            step(data)
        xm.wait_device_ops()

    calls = {"data on the device": there, "MpDeviceLoader": loaded}
    return {name: time / STEPS for name, time in take_turns(calls, rounds, lambda: None).items()}


# ---- The page ----
def all_reduce_lines(times: dict[str, float]) -> list[str]:
    lines = [f"| all_reduce of {MEGABYTES} MB | ms | / gloo |", "|---|---|---|"]
    return lines + [f"| {name} | {ms:.1f} | {ms / times['gloo']:.2f} |" for name, ms in times.items()]


def training_lines(found: dict) -> list[str]:
    names = list(next(iter(found.values()))[0])
    lines = [
        f"| training step | {' | '.join(f'{name}, ms' for name in names)} | xla / DDP |",
        "|---" * (len(names) + 2) + "|",
    ]
    for model, (times, _) in found.items():
        cells = " | ".join(f"{times[name]:.1f}" for name in names)
        lines.append(f"| {model} | {cells} | {times['xla'] / times['DDP']:.2f} |")
    lines += ["", "| training step | transfers | ms | overlapping |", "|---|---|---|---|"]
    for model, (_, (count, ms, share)) in found.items():
        lines.append(f"| {model} | {count} | {ms:.1f} | {share:.0%} |")
    return lines


def loader_lines(times: dict[str, float]) -> list[str]:
    there = times["data on the device"]
    lines = [f"| training step, {HOST_SECONDS * 1e3:.0f} ms of host work a batch | ms | ratio |", "|---|---|---|"]
    return lines + [f"| {name} | {ms:.1f} | {ms / there:.2f} |" for name, ms in times.items()]


def page(found: dict) -> list[str]:
    """The lines of the page."""
    return [
        "# What replicas cost",
        "",
        "For programs that train in several processes. Written by `bench/replicas.py`.",
        "",
        f"{machine()}. {load_line(*found['load'])}",
        "Two processes of one thread each, in turns; medians. DDP is PyTorch's",
        "`DistributedDataParallel` of CPU tensors over gloo. A transfer overlaps where the program computes beside it.",
        "Transfers need processors too: where each process has one, as here, an overlapping transfer makes the",
        "computing slower.",
        "",
        *all_reduce_lines(found["all_reduce"]),
        "",
        *training_lines(found["training"]),
        "",
        *(f"- {make.__name__}: {make.__doc__}" for make in MODELS),
        "",
        *loader_lines(found["loaders"]),
    ]


def main() -> None:
    """Measures and prints the page."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="turns of each training step")
    options = parser.parse_args()
    os.environ.update(WARM_MALLOC)
    before = load()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found"
        xmp.spawn(replica, args=(str(path), options.rounds), nprocs=2)
        found = json.loads(path.read_text(encoding="utf-8"))
    found["loaders"] = loaders(options.rounds)
    found["load"] = before, load()
    show(page(found), options.page)


if __name__ == "__main__":
    main()
