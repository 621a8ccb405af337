"""A Llama-like model with a cache for generation.

The weights have the names of Hugging Face's Llamas, so that files of safetensors fit.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Sizes:
    """What a model is made of. The vocabulary of 256 is bytes."""

    vocab_size: int = 256
    num_hidden_layers: int = 4
    hidden_size: int = 128
    intermediate_size: int = 384
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    max_position_embeddings: int = 128
    rope_theta: float = 1e4
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = False

    @property
    def head_size(self) -> int:
        """Numbers of a head's keys."""
        return self.hidden_size // self.num_attention_heads


def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Queries or keys, [N, heads, T, size], turned by the angles of their places."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def put(cache: torch.Tensor, k: torch.Tensor, v: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Puts keys and values into [2, N, heads, length, size]. Returns all of them, and which of them each place sees."""
    cache.index_copy_(3, place, torch.stack((k, v)))
    return cache[0], cache[1], torch.arange(cache.size(3), device=k.device) <= place[:, None]


class Attention(nn.Module):
    """Attention in which groups of heads share keys and values."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        width, self.size = sizes.hidden_size, sizes.head_size
        shared = sizes.num_key_value_heads * self.size
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = nn.Linear(width, shared, bias=False), nn.Linear(width, shared, bias=False)

    def forward(self, x: torch.Tensor, angles, cache: Callable | None, place: torch.Tensor) -> torch.Tensor:
        """[N, T, width]. `cache`: as put(), with its tensor."""
        q, k, v = (f(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        q, k = turn(q, *angles), turn(k, *angles)
        k, v, seen = cache(k, v, place) if cache else (k, v, None)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=seen is None, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a feed-forward part, each behind a norm."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.self_attn, width, inner = Attention(sizes), sizes.hidden_size, sizes.intermediate_size
        up = {name: nn.Linear(width, inner, bias=False) for name in ("gate_proj", "up_proj")}
        self.mlp = nn.ModuleDict({**up, "down_proj": nn.Linear(inner, width, bias=False)})
        self.input_layernorm = nn.RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)

    def forward(self, x: torch.Tensor, angles, cache: Callable | None, place: torch.Tensor) -> torch.Tensor:
        """[N, T, width]."""
        x = x + self.self_attn(self.input_layernorm(x), angles, cache, place)
        y = self.post_attention_layernorm(x)
        return x + self.mlp.down_proj(F.silu(self.mlp.gate_proj(y)) * self.mlp.up_proj(y))


class SmallLlama(nn.Module):
    """Tokens to the logits of the next token."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.sizes, width = sizes, sizes.hidden_size
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(sizes.vocab_size, width)
        self.model.layers = nn.ModuleList([Block(sizes) for _ in range(sizes.num_hidden_layers)])
        self.model.norm = nn.RMSNorm(width, sizes.rms_norm_eps)
        self.lm_head = nn.Linear(width, sizes.vocab_size, bias=False)
        if sizes.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def angles(self, place: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of the places' angles, [T, size] each."""
        size = self.sizes.head_size
        speeds = self.sizes.rope_theta ** (-torch.arange(0, size, 2, device=place.device) / size)
        angles = (place[:, None] * speeds).repeat(1, 2)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def forward(self, ids: torch.Tensor, caches=None, place: torch.Tensor | None = None) -> torch.Tensor:
        """[N, T, vocabulary] of int64[N, T]; with caches [N, 1, vocabulary]. `place`, int64[T]: places in them."""
        at = torch.arange(ids.size(1), device=ids.device) if place is None else place
        x = self.model.embed_tokens(ids)
        angles = self.angles(at, x.dtype)
        for number, block in enumerate(self.model.layers):
            x = block(x, angles, None if caches is None else caches[number], at)
        return self.lm_head(self.model.norm(x if caches is None else x[:, -1:]))

    def make_caches(self, count: int) -> list[Callable]:
        """Empty caches of `count` sequences of the full length."""
        sizes, like = self.sizes, self.model.embed_tokens.weight
        shape = (2, count, sizes.num_key_value_heads, sizes.max_position_embeddings, sizes.head_size)
        return [functools.partial(put, like.new_zeros(shape)) for _ in self.model.layers]
