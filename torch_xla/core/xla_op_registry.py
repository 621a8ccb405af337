"""Operations of the user's own, written with torch_xla.core.xla_builder."""

from collections.abc import Callable

import torch

from . import xla_builder as xb


class Op:
    """A named operation, described by its function."""

    def __init__(self, name: str, opfn: Callable):
        self._name, self._opfn = name, opfn

    def __call__(self, *args: torch.Tensor, **kwargs):
        """Records the operation.

        Args:
            args: tensors of one xla device; the function gets them as xla_builder.Op.
            kwargs: the function's other arguments: Python values.

        Returns the function's result as a tensor, or a tuple of tensors. They have no gradient: an operation with one
        is a torch.autograd.Function that calls two of these. Raises ValueError for tensors of other devices.
        """
        computation = xb.create_computation(self._name, self._opfn, xb.tensor_shape(args), **kwargs)
        results = computation(args)
        return results[0] if len(results) == 1 else results


def register(name: str, opfn: Callable) -> Op:
    """An operation that `opfn` describes.

        def first_rows(a, b, count=1):
            return a.slice_in_dim(0, count, 0) + b.slice_in_dim(0, count, 0)

        FIRST_ROWS = xor.register("first_rows", first_rows)
        c = FIRST_ROWS(a, b, count=2)

    Args:
        name: for people.
        opfn: takes xla_builder.Op, one for each tensor of a call, and the call's keyword arguments. Gives an Op, which
            may be a tuple of them.
    """
    return Op(name, opfn)
