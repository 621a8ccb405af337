"""Attention, which PyTorch's scaled_dot_product_attention computes, and repeats of a fixed size."""

import torch
import torch.nn.functional as F


def _segment_mask(q_segment_ids: torch.Tensor, kv_segment_ids: torch.Tensor) -> torch.Tensor:
    """True where a query and a key are of one segment: [batch, 1, q_len, kv_len]."""
    return (q_segment_ids[:, :, None] == kv_segment_ids[:, None, :])[:, None]


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    q_segment_ids: torch.Tensor | None = None,
    kv_segment_ids: torch.Tensor | None = None,
    sm_scale: float = 1.0,
    *,
    ab: torch.Tensor | None = None,
    partition_spec=None,
    mesh=None,
) -> torch.Tensor:
    """softmax(q @ k^T * sm_scale + ab) @ v, with gradients.

    Args:
        q, k, v: floating tensors of shape [batch, heads, length, head size].
        causal: a query sees the keys up to its own position only.
        q_segment_ids, kv_segment_ids: [batch, length] each; a query sees its own segment's keys only. Both or none.
        sm_scale: a number; 1, unlike PyTorch's 1 / sqrt(head size).
        ab: added to the scores, [batch, heads, q length, kv length].
        partition_spec, mesh: accepted for the original's sake.

    Returns a tensor of q's shape and dtype. Raises ValueError if one of the two segment_ids is missing.
    """
    del partition_spec, mesh
    if (q_segment_ids is None) != (kv_segment_ids is None):
        raise ValueError("q_segment_ids and kv_segment_ids are given together or not at all")
    if q_segment_ids is None and ab is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=sm_scale)
    mask = torch.zeros((), dtype=q.dtype, device=q.device) if ab is None else ab.to(q.dtype)
    if q_segment_ids is not None:
        mask = torch.where(_segment_mask(q_segment_ids, kv_segment_ids), mask, -torch.inf)
    if causal:
        seen = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).tril()
        mask = torch.where(seen, mask, -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=sm_scale)


def repeat_with_fixed_output_size(input: torch.Tensor, repeats: torch.Tensor, total_repeat_length: int) -> torch.Tensor:
    """torch.repeat_interleave of one dim, cut, or filled up with the last element, to a size that no value decides.

    Args:
        input: shape [n], of any dtype.
        repeats: [n], of an integer dtype: how often each element is repeated.
        total_repeat_length: the size of the result.

    Returns a tensor of shape [total_repeat_length]. Raises ValueError for other shapes.
    """
    if input.dim() != 1 or input.shape != repeats.shape:
        raise ValueError(
            f"input and repeats have one dim of one size, but not {list(input.shape)} and {list(repeats.shape)}"
        )
    places = torch.arange(total_repeat_length, device=input.device)
    index = torch.searchsorted(repeats.cumsum(0), places, right=True)
    return input[index.clamp(max=len(input) - 1)]
