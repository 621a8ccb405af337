"""Exports a digit classifier as StableHLO: text for JAX and others, weights as files of numpy; reads it again.

python examples/export_stablehlo.py [--steps 200] [--out results/exported]
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from tqdm import trange

from torch_xla.stablehlo import save_torch_model_as_stablehlo, StableHLOGraphModule


def train(steps: int) -> nn.Module:
    """A small network for the 8 x 8 scans, trained on the device."""
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1).to("xla") / 16
    labels = torch.tensor(digits.target).to("xla")
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to("xla")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in trange(steps, unit="step", leave=False):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    print(f"{100 * (model(images).argmax(1) == labels).float().mean().item():.1f} % of the digits are right")
    return model.eval()


def main() -> None:
    """Reads the command line, trains, exports, compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("results/exported"))
    args = parser.parse_args()

    model = train(args.steps)
    inputs = (torch.rand(3, 64, device="xla"),)
    save_torch_model_as_stablehlo(model, inputs, str(args.out))
    text = (args.out / "functions/forward.mlir").read_text(encoding="utf-8")
    print(*(line.strip() for line in text.splitlines() if "stablehlo.dot" in line), sep="\n")

    loaded = StableHLOGraphModule.load(str(args.out))
    torch.testing.assert_close(loaded(*inputs).cpu(), model(*inputs).detach().cpu())
    print(f"{args.out} gives the same values; docs/stablehlo.md runs it in JAX")


if __name__ == "__main__":
    main()
