"""Trains copies of a digit classifier on two devices: by processes, or by threads of one process.

python examples/data_parallel.py [--way processes|threads] [--replicas 2] [--epochs 5]
"""

import argparse
import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from tqdm import tqdm

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.data_parallel as dp
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr


def load_data() -> TensorDataset:
    """The 1,797 scans, flat, and their digits."""
    digits = load_digits()
    return TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))


def make_model() -> nn.Module:
    """The same first weights in each replica."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches) -> float:
    """The mean loss. optimizer_step() averages the gradients over the replicas, beside the backward."""
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
        losses.append(loss.detach())
    return torch.stack(losses).mean().item()


def train_process(index: int, epochs: int) -> None:
    """One process: a sampler gives it its part of the data."""
    device, data = torch_xla.device(), load_data()
    sampler = DistributedSampler(data, xr.world_size(), xr.global_ordinal(), drop_last=True)
    loader = pl.MpDeviceLoader(DataLoader(data, 32, sampler=sampler, drop_last=True), device)
    model = make_model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in tqdm(range(epochs), unit="epoch", leave=False, disable=index > 0):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, optimizer, loader)
    loss = xm.mesh_reduce("loss", loss, lambda losses: sum(losses) / len(losses))
    xm.master_print(f"{xr.world_size()} processes: loss {loss:.3f}")


def train_thread(model, loader, device, context) -> float:
    """One thread for an epoch: its loader gives the batches of its device."""
    optimizer = context.getattr_or("optimizer", lambda: torch.optim.Adam(model.parameters(), lr=1e-3))
    return train_epoch(model, optimizer, loader)


def train_threads(replicas: int, epochs: int) -> None:
    """A thread for each device of this process."""
    replicated = dp.DataParallel(make_model, device_ids=xm.get_xla_supported_devices(), numbered=False)
    loader = DataLoader(load_data(), 32, shuffle=True, drop_last=True)
    for _ in tqdm(range(epochs), unit="epoch", leave=False):
        losses = replicated(train_thread, loader)
    print(f"{replicas} threads: loss {sum(losses) / len(losses):.3f}")


def main() -> None:
    """Reads the command line and trains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=("processes", "threads"), default="processes")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    if args.way == "processes":
        xmp.spawn(train_process, args=(args.epochs,), nprocs=args.replicas)
    else:
        os.environ["CPU_NUM_DEVICES"] = str(args.replicas)  # before the first use of the device
        train_threads(args.replicas, args.epochs)


if __name__ == "__main__":
    main()
