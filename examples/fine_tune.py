"""Trains a small GPT on the pages of docs/, then fine-tunes it by LoRA on the pages of decisions.

Only the two small factors of each LoRA layer are trained in the second part; the optimizer has no state for the rest.

    python examples/fine_tune.py [--device xla|cpu] [--steps 300] [--out results/small_gpt.pt]
"""

import argparse
import time
from pathlib import Path

import torch
from small_gpt import draw_batch, loss_of, read_text, SmallGpt
from torch import nn
from tqdm import trange


class Lora(nn.Module):
    """A linear layer that stays as it is, plus a product of two small factors that starts at zero."""

    def __init__(self, linear: nn.Linear, rank: int):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        weight = linear.weight
        self.down = nn.Parameter(torch.randn(rank, weight.shape[1]).to(weight.device) / rank)
        self.up = nn.Parameter(torch.zeros(weight.shape[0], rank).to(weight.device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., out features] of [..., in features]."""
        return self.linear(x) + x @ self.down.T @ self.up.T

    def merged(self) -> nn.Linear:
        """The linear layer with the product added to its weight."""
        with torch.no_grad():
            self.linear.weight += self.up @ self.down
        return self.linear


def train(model: nn.Module, text: torch.Tensor, device: str, steps: int, rate: float, title: str) -> list[float]:
    """The losses of all steps. They are read once, at the end."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=rate)
    losses, start = [], time.perf_counter()
    for _ in trange(steps, desc=title, unit="step", leave=False):
        ids, following = draw_batch(text, 16, model.sizes["length"])
        optimizer.zero_grad()
        loss = loss_of(model, ids.to(device), following.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    values = torch.stack(losses).tolist()
    seconds = time.perf_counter() - start
    print(
        f"{title}: loss {values[0]:.3f} -> {values[-1]:.3f}, {sum(p.numel() for p in parameters):,} numbers trained, "
        f"{1e3 * seconds / steps:.1f} ms a step"
    )
    return values


def main() -> None:
    """Reads the command line, trains, fine-tunes, saves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("xla", "cpu"), default="xla", help="cpu: eager PyTorch")
    parser.add_argument("--steps", type=int, default=300, help="of each part")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rank", type=int, default=4, help="of the LoRA layers")
    parser.add_argument("--out", type=Path, default=Path("results/small_gpt.pt"))
    args = parser.parse_args()

    torch.manual_seed(0)
    model = SmallGpt(args.layers, args.width).to(args.device)
    train(model, read_text("*.md"), args.device, args.steps, 1e-3, "training")

    model.requires_grad_(False)
    for block in model.blocks:
        block.up, block.down = Lora(block.up, args.rank), Lora(block.down, args.rank)
    train(model, read_text("decisions/*.md"), args.device, args.steps, 2e-3, "fine-tuning")

    for block in model.blocks:
        block.up, block.down = block.up.merged(), block.down.merged()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"sizes": model.sizes, "weights": model.cpu().state_dict()}, args.out)
    print(f"the model is in {args.out}: python examples/generate_text.py --model {args.out}")


if __name__ == "__main__":
    main()
