"""Products of groups of rows, each with its own matrix, by torch._grouped_mm."""

import torch


def _offsets(group_sizes: torch.Tensor) -> torch.Tensor:
    """The ends of the groups: [groups], of int32."""
    return group_sizes.cumsum(0).to(torch.int32)


def _check_groups(lhs: torch.Tensor, rhs: torch.Tensor, group_sizes: torch.Tensor, rhs_dims: int) -> None:
    if lhs.dim() != 2 or rhs.dim() != rhs_dims or group_sizes.dim() != 1:
        shapes = f"{list(lhs.shape)}, {list(rhs.shape)} and {list(group_sizes.shape)}"
        raise ValueError(f"lhs, rhs and group_sizes have 2, {rhs_dims} and 1 dims, but not {shapes}")


def gmm(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    group_sizes: torch.Tensor,
    tiling: tuple[int, int, int] | None = None,
    group_offset: torch.Tensor | None = None,
    transpose_rhs: bool = False,
) -> torch.Tensor:
    """Each group's rows of lhs times its matrix of rhs, with gradients.

    Args:
        lhs: [m, k], floating.
        rhs: [groups, k, n].
        group_sizes: [groups], of an integer dtype: rows of each group, one after the other. Rows behind them give 0.
        tiling: accepted for the original's sake.
        group_offset: number of rhs's first group, a tensor of one element, if group_sizes has more groups than rhs.
            Rows of other groups give 0.
        transpose_rhs: rhs is [groups, n, k].

    Returns a tensor [m, n] of lhs's dtype. Raises ValueError for other numbers of dims.
    """
    del tiling
    _check_groups(lhs, rhs, group_sizes, 3)
    ends = _offsets(group_sizes)
    rows = torch.arange(lhs.size(0), device=lhs.device)
    first = torch.zeros((), dtype=torch.int32, device=lhs.device)
    if group_offset is not None:
        starts = torch.cat([ends.new_zeros(1), ends])
        groups = torch.arange(rhs.size(0) + 1, device=lhs.device) + group_offset.reshape(())
        bounds = starts[groups.clamp(max=len(group_sizes))]
        first, ends = bounds[0], bounds[1:] - bounds[0]
        lhs = lhs[(rows + first) % max(1, len(rows))]  # so that the first group's rows are in front
    matrices = rhs.transpose(1, 2) if transpose_rhs else rhs
    product = torch._grouped_mm(lhs, matrices.to(lhs.dtype), ends).to(lhs.dtype)
    product = torch.where((rows < ends[-1])[:, None], product, 0)
    return product if group_offset is None else product[(rows - first) % max(1, len(rows))]


def tgmm(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    group_sizes: torch.Tensor,
    tiling: tuple[int, int, int] = (512, 512, 512),
    group_offset: torch.Tensor | None = None,
    num_actual_groups: int | None = None,
) -> torch.Tensor:
    """Each group's columns of lhs times its rows of rhs, with gradients.

    Args:
        lhs: [k, m], floating.
        rhs: [m, n].
        group_sizes: [groups], as of gmm().
        tiling: accepted for the original's sake.
        group_offset: number of the first group of the result, a tensor of one element; by default 0.
        num_actual_groups: the number of groups of the result; by default all from that one on.

    Returns a tensor [groups, k, n] of lhs's dtype. Raises ValueError for other numbers of dims.
    """
    del tiling
    _check_groups(lhs, rhs, group_sizes, 2)
    product = torch._grouped_mm(lhs, rhs.to(lhs.dtype), _offsets(group_sizes)).to(lhs.dtype)
    count = len(group_sizes) if num_actual_groups is None else num_actual_groups
    if group_offset is None:
        return product[:count]
    groups = torch.arange(count, device=lhs.device) + group_offset.reshape(())
    return product[groups.clamp(max=len(group_sizes) - 1)]


def gmm_backward(
    grad: torch.Tensor,
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    group_sizes: torch.Tensor,
    tiling: tuple[int, int, int] = (512, 512, 512),
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of lhs and rhs, for the gradient of gmm(lhs, rhs, group_sizes)."""
    return gmm(grad, rhs.transpose(-1, -2), group_sizes, tiling), tgmm(lhs.t(), grad, group_sizes, tiling)
