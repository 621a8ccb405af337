"""Calls that need only this process's parts of their operands, and for which torch.distributed.tensor has no rule."""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard

from ._placements import join_parts, Placements
from ._spread_tensor import place, SpreadTensor


def _find_operand(args, kwargs) -> SpreadTensor:
    return next(value for value in (*args, *kwargs.values()) if isinstance(value, SpreadTensor))


def _cut_of(mesh: DeviceMesh, t: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> Placements:
    """How attention is cut: by the batch and the heads as `t` is, where all processes get the same number."""
    dims = (0, 1) if query.shape[1] == key.shape[1] else (0,)  # of grouped heads parts would not fit each other
    placements = t._placed.placements if isinstance(t, SpreadTensor) else [Replicate()] * mesh.ndim
    kept, parts = [], {0: 1, 1: 1}
    for axis, placement in enumerate(placements):
        dim = placement.dim if isinstance(placement, Shard) else None
        fits = dim in dims and query.shape[dim] % (parts[dim] * mesh.size(axis)) == 0
        kept.append(placement if fits else Replicate())
        parts = {**parts, dim: parts[dim] * mesh.size(axis)} if fits else parts
    return tuple(kept)


def _part(t: torch.Tensor | None, mesh: DeviceMesh, cut: Placements) -> torch.Tensor | None:
    """This process's part; a dim of size 1 stands for all of its elements."""
    if t is None:
        return None
    sizes = [1] * (4 - t.dim()) + list(t.shape)
    own = [p if isinstance(p, Shard) and sizes[p.dim] > 1 else Replicate() for p in cut]
    return place(t, mesh, own).to_local()


def _join(results, operands, mesh: DeviceMesh, cut: Placements) -> tuple:
    """The results, which have the sizes of the operands along the dims that are cut."""
    joined = []
    for part in results:
        shape = [operands.shape[0], operands.shape[1], *part.shape[2:]]
        shape[1] = shape[1] if any(p == Shard(1) for p in cut) else part.shape[1]
        joined.append(SpreadTensor(join_parts(part.contiguous(), mesh, cut, shape)))
    return tuple(joined)


def attend(func, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    """Attention, each process for its part of the batch and the heads."""
    mesh = _find_operand((query, key, value), {"attn_mask": attn_mask})._placed.device_mesh
    cut = _cut_of(mesh, query, query, key)
    parts = [_part(t, mesh, cut) for t in (query, key, value)]
    results = func(*parts, dropout_p, is_causal, attn_mask=_part(attn_mask, mesh, cut), scale=scale)
    return _join(results, query, mesh, cut)


def attend_backward(
    func, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None
):
    """The gradients of attend(), by the cut of its result."""
    mesh = _find_operand((out, grad_out, query, key, value), {})._placed.device_mesh
    cut = _cut_of(mesh, out, query, key)
    parts = [_part(t, mesh, cut) for t in (grad_out, query, key, value, out, logsumexp)]
    results = func(*parts, dropout_p, is_causal, attn_mask=_part(attn_mask, mesh, cut), scale=scale)
    return _join(results, query, mesh, cut)
