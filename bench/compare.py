"""Compares implementations on training and inference steps: warm processes that take turns, ratios of medians.

    python bench/compare.py --impls xla,eager --workloads mlp,gpt --rounds 5

Each implementation runs in a process of its own (this file with --serve) and starts from the same numbers. A turn lasts
--seconds; the checks (mean of the result after three steps) must agree between implementations.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

WARM_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}


def train(model, optimizer, loss_of):
    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def mlp(torch, device):
    """Training step of a 3-layer perceptron, batch 128, AdamW."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 16))
    x, y = torch.randn(128, 256), torch.randint(0, 16, (128,))
    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return train(model, optimizer, lambda m: nn.functional.cross_entropy(m(x), y))


def convnet(torch, device):
    """Training step of a small convolutional network with batch norm, SGD."""
    nn = torch.nn
    layers = []
    for i, o in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    x, y = torch.randn(32, 3, 48, 48), torch.randint(0, 10, (32,))
    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return train(model, optimizer, lambda m: nn.functional.cross_entropy(m(x), y))


def encoder(torch, device):
    """Inference of two transformer encoder layers, batch 16, 128 tokens, 256 features."""
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, norm_first=True)
    model = nn.Sequential(layer, layer).to(device).train(False)
    x = torch.randn(16, 128, 256).to(device)

    def step():
        with torch.no_grad():
            return model(x)

    return step


def chain(torch, device):
    """Elementwise chain with a softmax over (512, 4096)."""
    x = torch.randn(512, 4096).to(device)

    def step():
        with torch.no_grad():
            y = torch.nn.functional.silu(x * 1.5 + 0.25)
            return torch.softmax(y - y.mean(-1, keepdim=True), -1)

    return step


WORKLOADS = {f.__name__: f for f in (mlp, convnet, encoder, chain)}


def serve(impl, workload):
    import torch

    sync = wait = lambda: None
    if impl == "xla":
        import torch_xla
        import torch_xla.core.xla_model as xm

        sync, wait = torch_xla.sync, xm.wait_device_ops
    torch.manual_seed(0)
    step = WORKLOADS[workload](torch, "xla" if impl == "xla" else "cpu")
    if impl == "inductor":
        step = torch.compile(step)

    def once():
        result = step()
        sync()
        return result

    start = time.perf_counter()
    result = once()
    wait()
    first = time.perf_counter() - start
    for _ in range(2):
        result = once()
    check = (result.cpu().double() * torch.arange(1, result.numel() + 1).reshape(result.shape)).mean().item()
    print(json.dumps({"check": check, "first_s": first}), flush=True)
    for line in sys.stdin:
        samples, end = [], time.perf_counter() + float(line)
        while time.perf_counter() < end:
            start = time.perf_counter()
            once()
            wait()
            samples.append((time.perf_counter() - start) * 1e3)
        print(json.dumps(samples), flush=True)


class Worker:
    def __init__(self, impl, workload):
        command = [sys.executable, os.path.abspath(__file__), "--serve", impl, "--workloads", workload]
        environment = {**os.environ, **WARM_MALLOC}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.info = json.loads(self.process.stdout.readline())
        self.samples = []

    def turn(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        self.samples += json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)


def compare(workload, impls, rounds, seconds):
    workers = {impl: Worker(impl, workload) for impl in impls}
    for _ in range(rounds):
        for worker in workers.values():
            worker.turn(seconds)
    for worker in workers.values():
        worker.close()
    medians = {impl: statistics.median(worker.samples) for impl, worker in workers.items()}
    base = medians[impls[-1]]
    for impl, worker in workers.items():
        print(
            f"{workload:10s} {impl:9s} {medians[impl]:9.3f} ms  {medians[impl] / base:5.2f} x {impls[-1]}"
            f"  first step {worker.info['first_s']:6.2f} s  check {worker.info['check']:.6g}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--impls", default="xla,eager", help="of xla, eager, inductor; the last one is the base of the ratios"
    )
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.workloads)
        return
    for workload in options.workloads.split(","):
        compare(workload, options.impls.split(","), options.rounds, options.seconds)


if __name__ == "__main__":
    main()
