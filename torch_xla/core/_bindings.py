"""Functions of the original's bindings (`torch_xla._XLAC`) that need no C++ of their own."""

from collections.abc import Sequence

import torch

from .. import _XLAC


def dot_general(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    dimension_numbers: tuple,
    precision_config: Sequence[str] | None = None,
    preferred_element_type: torch.dtype | None = None,
) -> torch.Tensor:
    """XLA's general product of two tensors.

    Args:
        dimension_numbers: ((dims of lhs, dims of rhs) to sum over, (dims of lhs, dims of rhs) of the batch or ());
            dims count from the end if negative.
        precision_config: accepted for the original's sake: torch.set_float32_matmul_precision() decides.
        preferred_element_type: the type of sums and result, as torch.int32 for operands of int8; by default lhs's.

    Returns a tensor of the batch's dims, the other ones of lhs and those of rhs. Raises RuntimeError for sizes that
    do not fit.
    """
    del precision_config
    summed, batch = dimension_numbers[0], dimension_numbers[1] or ((), ())
    of_lhs = list(range(lhs.dim()))  # a number for each dim; paired dims share one
    of_rhs = list(range(lhs.dim(), lhs.dim() + rhs.dim()))
    for left, right in zip((*batch[0], *summed[0]), (*batch[1], *summed[1]), strict=True):
        of_rhs[right] = of_lhs[left]
    in_batch, gone = [of_lhs[dim] for dim in batch[0]], {of_lhs[dim] for dim in summed[0]}
    free = [number for number in (*of_lhs, *of_rhs) if number not in gone and number not in in_batch]
    dtype = preferred_element_type or lhs.dtype
    return torch.einsum(lhs.to(dtype), of_lhs, rhs.to(dtype), of_rhs, [*in_batch, *free])


def dimension_size(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """The size of a dim as a number on the tensor's device, of int32. Raises IndexError if there is no such dim."""
    return torch.tensor(tensor.size(dim), dtype=torch.int32, device=tensor.device)


def git_revisions() -> dict[str, str]:
    """The git revisions of this package ("xla"; empty for an unpacked archive) and of PyTorch."""
    return {"xla": _XLAC._revision, "torch": torch.version.git_version}


def tensors_hlo_proto(tensors: Sequence[torch.Tensor]) -> bytes:
    """The pending graph of the tensors, or of all, as a serialized HloModuleProto.

    Raises NotImplementedError for an operation that has no StableHLO form.
    """
    from ._hlo_text import proto_of_text

    return proto_of_text(_XLAC._get_xla_tensors_hlo(tensors))


def ensure_coordinator(global_rank: int, world_size: int, master_addr: str, master_port: str = "") -> None:
    """Does nothing: torch.distributed's store connects the processes here."""


_XLAC._ensure_xla_coordinator_initialized = ensure_coordinator
_XLAC._get_git_revs = git_revisions
_XLAC._get_xla_tensors_hlo_proto = tensors_hlo_proto
_XLAC._xla_dot_general = dot_general
_XLAC._get_xla_tensor_dimension_size = dimension_size
