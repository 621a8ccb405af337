"""Trains a model on a mesh of four devices: batches are cut along one axis, weights along the other.

python examples/spmd.py [--steps 100]
"""

import argparse
import os

os.environ.setdefault("CPU_NUM_DEVICES", "4")  # before the first use of the device

import torch
from torch import nn
from tqdm import trange

import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla.distributed.spmd.debugging import visualize_tensor_sharding


def make_model(mesh: xs.Mesh) -> nn.Sequential:
    """Two products: the first weight is cut along its outputs, the second along its inputs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)).to("xla")
    xs.mark_sharding(model[0].weight, mesh, ("model", None))
    xs.mark_sharding(model[2].weight, mesh, (None, "model"))
    return model


def main() -> None:
    """Reads the command line, trains, shows the shards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()

    xr.use_spmd()
    count = xr.global_runtime_device_count()
    mesh = xs.Mesh(range(count), (count // 2, 2), ("data", "model"))
    model = make_model(mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    teacher = torch.randn(64, 10)
    losses = []
    for _ in trange(args.steps, unit="step", leave=False):
        x = torch.randn(32, 64)
        y = (x @ teacher).argmax(1)
        x = xs.mark_sharding(x.to("xla"), mesh, ("data", None))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y.to("xla"))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    values = torch.stack(losses).tolist()
    print(f"loss {values[0]:.3f} -> {values[-1]:.3f} on {count} devices; the first weight lies on them so:")
    visualize_tensor_sharding(model[0].weight)


if __name__ == "__main__":
    main()
