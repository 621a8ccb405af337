"""XLA's general convolution, for torch_xla.core.xla_builder."""

import dataclasses
from collections.abc import Sequence

import torch

from ._windows import padded, Pairs


@dataclasses.dataclass
class Numbers:
    """The roles of dims of the input, the kernel and the output."""

    input_batch: int
    input_feature: int
    kernel_input_feature: int
    kernel_output_feature: int
    output_batch: int
    output_feature: int
    input_spatial: Sequence[int]
    kernel_spatial: Sequence[int]
    output_spatial: Sequence[int]

    @classmethod
    def usual(cls, rank: int) -> "Numbers":
        """Batch, features, space, as in PyTorch; kernels begin with the features of the output."""
        space = range(2, rank)
        return cls(0, 1, 1, 0, 0, 1, space, space, space)


def _with_groups_as_features(tensor: torch.Tensor, groups: int) -> torch.Tensor:
    """[groups * n, features, ...] as [n, groups * features, ...]."""
    return tensor.unflatten(0, (groups, -1)).transpose(0, 1).flatten(1, 2)


def convolve(
    tensor: torch.Tensor,
    kernel: torch.Tensor,
    strides: Sequence[int],
    pads: Pairs,
    numbers: Numbers,
    dilations: tuple[Sequence[int], Sequence[int]] | None = None,
    feature_groups: int = 1,
    batch_groups: int = 1,
) -> torch.Tensor:
    """The convolution; integers are summed in float64.

    Args:
        pads: for each dim of space; negative ones remove elements.
        dilations: of the tensor and of the kernel.

    Raises NotImplementedError for more than three dims of space.
    """
    space = len(numbers.input_spatial)
    if space > 3:
        raise NotImplementedError(f"a convolution has three dims of space at most, but got {space}")
    of_tensor, of_kernel = dilations or ([1] * space, [1] * space)
    dtype = tensor.dtype
    if not dtype.is_floating_point and not dtype.is_complex:
        tensor, kernel = tensor.double(), kernel.double()
    tensor = tensor.permute(numbers.input_batch, numbers.input_feature, *numbers.input_spatial)
    kernel = kernel.permute(numbers.kernel_output_feature, numbers.kernel_input_feature, *numbers.kernel_spatial)
    own = [low for low, _ in pads]
    if any(low != high or low < 0 for low, high in pads) or any(each > 1 for each in of_tensor):
        around = [(low, high, between - 1) for (low, high), between in zip(pads, of_tensor, strict=True)]
        tensor, own = padded(tensor, tensor.new_zeros(()), [(0, 0, 0), (0, 0, 0), *around]), [0] * space
    if batch_groups > 1:
        tensor, feature_groups = _with_groups_as_features(tensor, batch_groups), batch_groups
    if not space:
        tensor, kernel, strides, own, of_kernel = tensor.unsqueeze(-1), kernel.unsqueeze(-1), [1], [0], [1]
    none = [0] * max(space, 1)
    result = torch.convolution(tensor, kernel, None, list(strides), own, list(of_kernel), False, none, feature_groups)
    result = result if space else result.squeeze(-1)
    order = [numbers.output_batch, numbers.output_feature, *numbers.output_spatial]
    return result.permute([order.index(d) for d in range(len(order))]).to(dtype)
