"""Generates text with a small GPT and a static cache, with its weights in four formats.

Each token is one run of one program: the cache has its full length from the start, and the place of the token is a
tensor. The next byte is drawn on the device and is read only at the end.

    python examples/generate_text.py [--model results/small_gpt.pt] [--device xla|cpu] [--tokens 100]
"""

import argparse
import copy
import time
from pathlib import Path

import torch
from small_gpt import SmallGpt
from torch import nn
from tqdm import trange

import torch_xla
from torch_xla.experimental.xla_quantized_matmul import XlaQuantizedLinear

FORMATS = ("float32", "bfloat16", "int8", "int4")


class Quantized(nn.Module):
    """A linear layer with weights of 8 or 4 bits: a scale for each output, or for each block of 32 inputs."""

    def __init__(self, linear: nn.Linear, bits: int):
        super().__init__()
        features, inputs = linear.weight.shape
        most = 2 ** (bits - 1) - 1
        weight = linear.weight.detach()
        if bits == 4:
            weight = weight.T.reshape(-1, 32, features)
        scale = weight.abs().amax(dim=1) / most
        rounded = (weight / scale.unsqueeze(1)).round().to(torch.int8)
        block_size = 32 if bits == 4 else -1
        self.product = XlaQuantizedLinear(inputs, features, True, block_size, int4_weight=bits == 4)
        self.product.load_quantized_weight(rounded, scale)
        self.bias = linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., out features] of [..., in features]."""
        return self.product(x) + self.bias


def convert(model: SmallGpt, form: str) -> SmallGpt:
    """A copy of the model with its weights in a format. Embeddings and norms of quantized models stay float32."""
    model = copy.deepcopy(model)
    if form == "bfloat16":
        return model.bfloat16()
    if form in ("int8", "int4"):
        for block in model.blocks:
            for name in ("qkv", "out", "up", "down"):
                setattr(block, name, Quantized(getattr(block, name), int(form[3:])))
    return model


@torch.no_grad()
def generate(model: SmallGpt, prompt: bytes, count: int, device: str, title: str) -> bytes:
    """The prompt and `count` bytes after it."""
    ids = torch.tensor([list(prompt)], device=device)
    caches = model.make_caches(1, model.head.weight.dtype)
    place = torch.arange(ids.size(1), device=device)
    last, made = ids, []
    for _ in trange(count, desc=title, unit="token", leave=False):
        logits = model(last, caches, place)[:, -1].float()
        last = torch.multinomial(torch.softmax(logits / 0.7, -1), 1)
        made.append(last)
        place = place[-1:] + 1
        if device == "xla":
            torch_xla.sync()
    return prompt + bytes(torch.cat(made, 1)[0].tolist())


def main() -> None:
    """Reads the command line, loads or makes a model, generates in each format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a file of fine_tune.py; without one the weights are random")
    parser.add_argument("--device", choices=("xla", "cpu"), default="xla", help="cpu: eager PyTorch")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--prompt", default="The device ")
    args = parser.parse_args()

    torch.manual_seed(0)
    saved = torch.load(args.model, weights_only=True) if args.model else {"sizes": {}, "weights": None}
    base = SmallGpt(**saved["sizes"]).eval()
    if saved["weights"]:
        base.load_state_dict(saved["weights"])
    count = min(args.tokens, base.sizes["length"] - len(args.prompt.encode()))
    for form in FORMATS:
        model = convert(base, form).to(args.device)
        generate(model, args.prompt.encode(), min(3, count), args.device, "first tokens")
        start = time.perf_counter()
        text = generate(model, args.prompt.encode(), count, args.device, form)
        seconds = time.perf_counter() - start
        size = sum(t.numel() * t.element_size() for t in [*model.parameters(), *model.buffers()]) / 2**20
        print(f"{form:8} {size:6.2f} MB, {count / seconds:6.1f} tokens/s: {text.decode(errors='replace')!r}")


if __name__ == "__main__":
    main()
