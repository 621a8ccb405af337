"""Calls that each process computes on its parts by rules of this package.

torch.distributed.tensor has none for attention, and its rule for embeddings fails where several axes cut the weight.
"""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from ._placements import join_parts, own_part, Placements, without_empty_parts, without_sums
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


def _part(t: torch.Tensor, mesh: DeviceMesh, cut: Placements) -> torch.Tensor:
    return place(t, mesh, cut).to_local()


def _part_of_mask(mask: torch.Tensor | None, mesh: DeviceMesh, cut: Placements) -> torch.Tensor | None:
    """This process's part of a mask of 2 or 4 dims; a dim of size 1 stands for all elements."""
    if mask is None:
        return None
    own = [p if isinstance(p, Shard) and mask.dim() == 4 and mask.shape[p.dim] > 1 else Replicate() for p in cut]
    return _part(mask, mesh, tuple(own))


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
    results = func(*parts, dropout_p, is_causal, attn_mask=_part_of_mask(attn_mask, mesh, cut), scale=scale)
    return _join(results, query, mesh, cut)


def attend_backward(
    func, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None
):
    """The gradients of attend(), by the cut of its result."""
    mesh = _find_operand((out, grad_out, query, key, value), {})._placed.device_mesh
    cut = _cut_of(mesh, out, query, key)
    parts = [_part(t, mesh, cut) for t in (grad_out, query, key, value, out, logsumexp)]
    results = func(*parts, dropout_p, is_causal, attn_mask=_part_of_mask(attn_mask, mesh, cut), scale=scale)
    return _join(results, query, mesh, cut)


# ---- Embeddings ----
def embed(func, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    """Rows of the weight by their numbers. A process without a row gives zeros, which add nothing to the others'."""
    mesh = _find_operand((weight, indices), {})._placed.device_mesh
    of_rows, of_indices = _placements_of(weight, mesh), _placements_of(indices, mesh)
    gathers_indices = indices.numel() * weight.shape[1] <= weight.numel()
    for axis in range(mesh.ndim):
        if isinstance(of_rows[axis], Shard) and isinstance(of_indices[axis], Shard):
            (of_indices if gathers_indices else of_rows)[axis] = Replicate()
    rows = without_empty_parts(place(weight, mesh, of_rows))
    numbers = place(indices, mesh, of_indices).to_local()
    (own, _), _ = own_part(rows)
    if own.stop - own.start == rows.shape[0]:
        part = func(rows.to_local(), numbers, padding_idx)
    else:
        missing = (numbers < own.start) | (numbers >= own.stop)
        part = func(rows.to_local(), (numbers - own.start).masked_fill(missing, 0))
        part = part.masked_fill(missing.unsqueeze(-1), 0)
    cut = [_cut_of_rows(*pair, indices.dim()) for pair in zip(rows.placements, of_indices)]
    return SpreadTensor(join_parts(part, mesh, tuple(cut), [*indices.shape, weight.shape[1]]))


def _placements_of(t: torch.Tensor, mesh: DeviceMesh) -> list:
    placed: DTensor | None = t._placed if isinstance(t, SpreadTensor) and t._placed.device_mesh == mesh else None
    return [Replicate()] * mesh.ndim if placed is None else list(without_sums(placed.placements))


def _cut_of_rows(of_rows, of_indices, dims: int):
    """How an axis cuts the result."""
    if isinstance(of_rows, Shard):
        return Partial() if of_rows.dim == 0 else Shard(dims)
    return of_indices
