"""Trains a model with its weights spread over two processes, by PyTorch's FSDP2; one process loads its checkpoint.

python examples/fsdp.py [--replicas 2] [--steps 200] [--out results/fsdp]
"""

import argparse
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from tqdm import trange

import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr


def make_model() -> nn.Sequential:
    """Blocks of two products; the same first weights in each replica."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(3)]
    return nn.Sequential(*blocks, nn.Linear(64, 10))


def train(index: int, args: argparse.Namespace) -> None:
    """One replica: each block is gathered for its forward and its backward, and its gradients are spread again."""
    mesh = init_device_mesh("xla", (xr.world_size(),))
    model = make_model().to("xla")
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    teacher = torch.randn(64, 10, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(2 + index)  # other data in each replica
    losses = []
    for _ in trange(args.steps, unit="step", leave=False, disable=index > 0):
        x = torch.randn(32, 64)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to("xla")), (x @ teacher).argmax(1).to("xla"))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    first, last = (torch.stack(part).mean().item() for part in (losses[:5], losses[-5:]))
    own = sum(parameter.to_local().numel() for parameter in model.parameters())
    whole = sum(parameter.numel() for parameter in model.parameters())
    dcp.save({"model": model.state_dict()}, checkpoint_id=args.out)
    xm.master_print(f"loss {first:.3f} -> {last:.3f}; a replica has {own:,} of {whole:,} numbers")
    torch.distributed.destroy_process_group()


def main() -> None:
    """Reads the command line, trains, loads the checkpoint into a whole model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("results/fsdp"))
    args = parser.parse_args()
    xmp.spawn(train, args=(args,), nprocs=args.replicas)

    model = make_model()
    before = model[0][0].weight.clone()
    dcp.load({"model": model.state_dict()}, checkpoint_id=args.out)
    changed = (model[0][0].weight - before).abs().max().item()
    print(f"loaded on the CPU; the first weight has moved by up to {changed:.3f}")


if __name__ == "__main__":
    main()
