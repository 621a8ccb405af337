"""Trains a small Llama on the pages of docs/, then fine-tunes it by LoRA on the pages of decisions.

Only the two small factors of each LoRA layer are trained in the second part; the optimizer has no state for the rest.

    python examples/fine_tune.py [--device xla|cpu] [--steps 300] [--out results/small_llama]
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from small_llama import Sizes, SmallLlama
from torch import nn
from tqdm import trange

DOCS = Path(__file__).resolve().parents[1] / "docs"


def read_text(pattern: str) -> torch.Tensor:
    """The bytes of the pages of docs/ that a pattern fits, int64[size]."""
    text = b"".join(path.read_bytes() for path in sorted(DOCS.glob(pattern)))
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def draw_batch(text: torch.Tensor, count: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`count` places of the text, int64[count, length], and the bytes that follow."""
    starts = torch.randint(len(text) - length - 1, (count, 1))
    at = starts + torch.arange(length)
    return text[at], text[at + 1]


def loss_of(model: nn.Module, ids: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of the following bytes."""
    return F.cross_entropy(model(ids).flatten(0, 1), following.flatten())


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
        ids, following = draw_batch(text, 16, model.sizes.max_position_embeddings)
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
    parser.add_argument("--out", type=Path, default=Path("results/small_llama"), help="a folder")
    args = parser.parse_args()

    torch.manual_seed(0)
    sizes = Sizes(num_hidden_layers=args.layers, hidden_size=args.width, intermediate_size=3 * args.width)
    model = SmallLlama(sizes).to(args.device)
    train(model, read_text("*.md"), args.device, args.steps, 1e-3, "training")

    model.requires_grad_(False)
    parts = [block.mlp for block in model.model.layers]
    for part in parts:
        part.up_proj, part.down_proj = Lora(part.up_proj, args.rank), Lora(part.down_proj, args.rank)
    train(model, read_text("decisions/*.md"), args.device, args.steps, 2e-3, "fine-tuning")

    for part in parts:
        part.up_proj, part.down_proj = part.up_proj.merged(), part.down_proj.merged()
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), args.out / "model.safetensors")
    (args.out / "config.json").write_text(json.dumps(dataclasses.asdict(sizes)), encoding="utf-8")
    print(f"the model is in {args.out}: python examples/generate.py --model {args.out}")


if __name__ == "__main__":
    main()
