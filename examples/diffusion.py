"""Trains a small diffusion model on scikit-learn's handwritten digits, and draws new ones.

python examples/diffusion.py [--device xla|cpu] [--steps 2000] [--out results/diffusion.png]
"""

import argparse
import time
from pathlib import Path

import matplotlib
import torch
from sklearn.datasets import load_digits
from torch import nn
from tqdm import tqdm, trange

import torch_xla

matplotlib.use("Agg")
from matplotlib import pyplot as plt


class Denoiser(nn.Module):
    """The noise in images float32[N, 1, 8, 8], given its level."""

    def __init__(self, levels: int, channels: int):
        super().__init__()
        self.level = nn.Embedding(levels, channels)
        self.enter = nn.Conv2d(1, channels, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1))
            for _ in range(4)
        )
        self.leave = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, images: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        """float32[N, 1, 8, 8]."""
        x = self.enter(images)
        for block in self.blocks:
            x = x + block(x + self.level(levels)[:, :, None, None])
        return self.leave(x)


def train(model: Denoiser, images: torch.Tensor, kept: torch.Tensor, args: argparse.Namespace) -> list[float]:
    """The losses. All images lie on the device; a step draws some, their levels and the noise there."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for _ in trange(args.steps, desc="training", unit="step", leave=False):
        clean = images[torch.randint(len(images), (64,), device=images.device)]
        levels = torch.randint(len(kept), (64,), device=images.device)
        noise, share = torch.randn_like(clean), kept[levels][:, None, None, None]
        optimizer.zero_grad()
        loss = (model(share.sqrt() * clean + (1 - share).sqrt() * noise, levels) - noise).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


@torch.no_grad()
def draw(model: Denoiser, kept: torch.Tensor, count: int) -> torch.Tensor:
    """New images, from noise: the level is a tensor, so each turn is a run of one program."""
    images = torch.randn(count, 1, 8, 8, device=kept.device)
    before = torch.cat((torch.ones(1, device=kept.device), kept[:-1]))
    at = torch.full((), len(kept) - 1, device=kept.device)
    for _ in tqdm(range(len(kept)), desc="drawing", unit="level", leave=False):
        share, earlier = kept[at], before[at]
        rate = 1 - share / earlier
        noise = model(images, at.expand(count))
        images = (images - rate / (1 - share).sqrt() * noise) / (1 - rate).sqrt()
        images = images + (rate * (1 - earlier) / (1 - share)).sqrt() * torch.randn_like(images)
        at = at - 1
        if kept.device.type == "xla":
            torch_xla.sync()
    return images.cpu()


def main() -> None:
    """Reads the command line, trains, draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("xla", "cpu"), default="xla", help="cpu: eager PyTorch")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--levels", type=int, default=100, help="of noise")
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--out", type=Path, default=Path("results/diffusion.png"))
    args = parser.parse_args()

    torch.manual_seed(0)
    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None].to(args.device) / 8 - 1
    kept = torch.linspace(0, 1, args.levels + 1)[1:].mul(torch.pi / 2).cos().square().clamp(min=1e-4).to(args.device)
    model = Denoiser(args.levels, args.channels).to(args.device)
    start = time.perf_counter()
    losses = train(model, images, kept, args)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, {1e3 * (time.perf_counter() - start) / args.steps:.1f} ms a step")
    figure, axes = plt.subplots(2, 8, figsize=(8, 2.2))
    for axis, image in zip(axes.flat, draw(model, kept, 16)):
        axis.imshow(image[0], cmap="gray", vmin=-1, vmax=1)
        axis.set_axis_off()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, dpi=120)
    print(f"new digits in {args.out}")


if __name__ == "__main__":
    main()
