"""The original's attention with masks by segments and windows (splash attention), by PyTorch's operations."""

import dataclasses
import json

import torch
import torch.nn.functional as F


@dataclasses.dataclass(eq=True, frozen=True)
class SplashAttentionConfig:
    """Options of the attention. Only the last two have an effect here.

    Attributes:
        sa_*: tuning of the original's kernel.
        mesh, qkv_partition_spec, segment_ids_partition_spec: its sharding over devices.
        attentiontype_local_sliding: a query sees only keys within slide_window_size.
    """

    sa_block_q: int = 2048
    sa_block_kv: int = 2048
    sa_block_kv_compute: int = 2048
    sa_block_q_dkv: int = 2048
    sa_block_kv_dkv: int = 2048
    sa_block_kv_dkv_compute: int = 2048
    sa_block_q_dq: int = 2048
    sa_block_kv_dq: int = 2048
    sa_use_fused_bwd_kernel: bool = True
    sa_q_layout: str = "HEAD_DIM_MINOR"
    sa_k_layout: str = "HEAD_DIM_MINOR"
    sa_v_layout: str = "HEAD_DIM_MINOR"
    mesh: str | None = None
    qkv_partition_spec: tuple = (("data", "fsdp"), None, None, None)
    segment_ids_partition_spec: tuple = (("data", "fsdp"), None)
    attentiontype_local_sliding: bool = False
    slide_window_size: int | None = None

    def to_json(self) -> str:
        """The config argument of splash_attention()."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, data: str) -> "SplashAttentionConfig":
        """The inverse of to_json()."""
        return cls(**{name: _with_tuples(value) for name, value in json.loads(data).items()})


def _with_tuples(value):
    """Turns JSON's lists back into tuples."""
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _mask(
    q: torch.Tensor, k: torch.Tensor, config: SplashAttentionConfig, segment_ids: torch.Tensor | None, causal: bool
) -> torch.Tensor | None:
    """True where a query sees a key: of a shape that broadcasts to [batch, heads, q length, k length]. None: always."""
    masks = []
    to, of = torch.arange(q.size(-2), device=q.device)[:, None], torch.arange(k.size(-2), device=q.device)
    if causal:
        masks.append(to >= of)
    if config.attentiontype_local_sliding:
        if config.slide_window_size is None:
            raise ValueError("slide_window_size is missing, which attentiontype_local_sliding needs")
        masks.append((to - of).abs() <= config.slide_window_size)
    if segment_ids is not None:
        masks.append((segment_ids[:, :, None] == segment_ids[:, None, :])[:, None])
    mask = None
    for each in masks:
        mask = each if mask is None else mask & each
    return mask


def _capped_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, soft_cap: float
) -> torch.Tensor:
    """In float32, or q's dtype if that is wider."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = torch.tanh(q.to(wide) @ k.to(wide).mT / soft_cap) * soft_cap
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    return (torch.softmax(scores, -1) @ v.to(wide)).to(q.dtype)


def splash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    config: str,
    decoder_segment_ids: torch.Tensor | None = None,
    causal: bool = True,
    attn_logits_soft_cap: float | None = None,
) -> torch.Tensor:
    """softmax(cap(q @ k^T)) @ v over the keys that a query sees, with gradients. The scores are not scaled.

    Args:
        q, k, v: floating tensors of shape [batch, heads, length, head size].
        config: of SplashAttentionConfig.to_json().
        decoder_segment_ids: [batch, length]; a query sees its own segment's keys only.
        causal: a query sees the keys up to its own position only.
        attn_logits_soft_cap: c of cap(x) = c * tanh(x / c); by default scores are not capped.

    Returns a tensor of q's shape and dtype. Raises ValueError for a window without a size.
    """
    mask = _mask(q, k, SplashAttentionConfig.from_json(config), decoder_segment_ids, causal)
    if attn_logits_soft_cap is not None:
        return _capped_attention(q, k, v, mask, attn_logits_soft_cap)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)


class SplashAttention:
    """splash_attention() by the name of the original's function with a gradient: `SplashAttention.apply(...)`."""

    apply = staticmethod(splash_attention)
