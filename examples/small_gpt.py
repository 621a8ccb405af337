"""A small GPT over bytes, with a cache for generation, and the text that the other examples train it on."""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

DOCS = Path(__file__).resolve().parents[1] / "docs"


class Block(nn.Module):
    """Attention and a feed-forward part, each behind a norm."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, cache: torch.Tensor | None, place: torch.Tensor | None) -> torch.Tensor:
        """float32[N, T, width]. `cache`, [2, N, heads, length, head width], gets keys and values at `place`."""
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if cache is None:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            cache.index_copy_(3, place, torch.stack((k, v)))
            seen = torch.arange(cache.size(3), device=x.device) <= place[:, None]
            mixed = F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=seen)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class SmallGpt(nn.Module):
    """Bytes to the logits of the next byte."""

    def __init__(self, layers: int = 4, width: int = 128, heads: int = 4, length: int = 128):
        super().__init__()
        self.sizes = {"layers": layers, "width": width, "heads": heads, "length": length}
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, ids: torch.Tensor, caches=None, place: torch.Tensor | None = None) -> torch.Tensor:
        """float32[N, T, 256] of int64[N, T]. With caches `place`, int64[T], has the places of the T bytes."""
        at = torch.arange(ids.size(1), device=ids.device) if place is None else place
        x = self.bytes(ids) + self.places(at)
        for number, block in enumerate(self.blocks):
            x = block(x, None if caches is None else caches[number], place)
        return self.head(self.norm(x))

    def make_caches(self, count: int, dtype: torch.dtype) -> list[torch.Tensor]:
        """Empty caches of `count` sequences of the full length."""
        heads, length = self.sizes["heads"], self.sizes["length"]
        shape = (2, count, heads, length, self.sizes["width"] // heads)
        return [torch.zeros(shape, dtype=dtype, device=self.head.weight.device) for _ in self.blocks]


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
