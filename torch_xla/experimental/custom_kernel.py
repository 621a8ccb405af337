"""The original's kernels for TPUs by PyTorch's operations: attention, products of groups, repeats of a fixed size."""

import torch
import torch.nn.functional as F

from .. import _gone
from ..core._operators import XLA_LIB
from ._grouped_products import gmm, gmm_backward, tgmm  # noqa: F401 (part of this module for its users)


def _segment_mask(q_segment_ids: torch.Tensor, kv_segment_ids: torch.Tensor) -> torch.Tensor:
    """True where a query and a key are of one segment: [batch, 1, q_len, kv_len]."""
    return (q_segment_ids[..., :, None] == kv_segment_ids[..., None, :]).unsqueeze(-3)


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
        q, k, v: floating tensors of shape [batch, heads, length, head size]; more dims before these are batches too.
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


class FlashAttention:
    """flash_attention() by the name of the original's function with a gradient: `FlashAttention.apply(...)`.

    Its numbers tune the original's kernel; programs may set them, and nothing reads them.
    """

    MIN_BLOCK_SIZE = NUM_LANES = 128
    NUM_SUBLANES = 8
    DEFAULT_MASK_VALUE = -0.7 * torch.finfo(torch.float32).max
    DEFAULT_BLOCK_SIZES = {  # noqa: RUF012 (programs write into it)
        "block_b": 2,
        "block_q": 512,
        "block_k": 512,
        "block_k_major": 512,
        "block_q_dkv": 512,
        "block_k_dkv": 512,
        "block_q_major_dkv": 512,
        "block_k_major_dkv": 512,
        "block_q_dq": 1024,
        "block_k_dq": 256,
        "block_k_major_dq": 512,
    }

    @staticmethod
    def apply(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        causal: bool,
        q_segment_ids: torch.Tensor | None,
        kv_segment_ids: torch.Tensor | None,
        sm_scale: float,
        ab: torch.Tensor | None,
        partition_spec,
        mesh,
    ) -> torch.Tensor:
        """flash_attention() with all its arguments."""
        return flash_attention(
            q, k, v, causal, q_segment_ids, kv_segment_ids, sm_scale, ab=ab, partition_spec=partition_spec, mesh=mesh
        )


class GMM:
    """gmm() by the name of the original's function with a gradient: `GMM.apply(...)`."""

    apply = staticmethod(gmm)


def _histogram(input: torch.Tensor, min: int, max: int) -> torch.Tensor:
    """Counts of the integers from `min` to `max` in the int32 tensor: int32 of [max - min + 1].

    Raises TypeError for another dtype, ValueError for a min over max.
    """
    if input.dtype != torch.int32:
        raise TypeError(f"a histogram is of torch.int32, but the tensor is of {input.dtype}")
    if min > max:
        raise ValueError(f"a histogram needs min <= max, but got {min} and {max}")
    numbers = torch.arange(min, max + 1, dtype=torch.int32, device=input.device)
    return (numbers[:, None] == input.flatten()).sum(1, dtype=torch.int32)


def repeat_with_fixed_output_size(input: torch.Tensor, repeats: torch.Tensor, total_repeat_length: int) -> torch.Tensor:
    """torch.repeat_interleave of one dim, cut or padded with the last element to a fixed size.

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


# torch.ops.xla.flash_attention and gmm; `casual` is the original's.
XLA_LIB.define("flash_attention(Tensor q, Tensor k, Tensor v, bool casual=False) -> Tensor")
XLA_LIB.impl("flash_attention", flash_attention, "CompositeImplicitAutograd")
XLA_LIB.define(
    "gmm(Tensor lhs, Tensor rhs, Tensor group_sizes, int[]? tiling=None, Tensor? group_offset=None, "
    "bool transpose_rhs=False) -> Tensor"
)
XLA_LIB.impl("gmm", gmm, "CompositeImplicitAutograd")


def __getattr__(name: str):
    _gone.refuse(__name__, name)
