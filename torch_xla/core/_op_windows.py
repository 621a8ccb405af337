"""Operations with windows, indices and functions of the user's own: a part of torch_xla.core.xla_builder.Op.

The names and arguments are the original's. `precision_config`, `indices_are_sorted`, `unique_indices` and `is_stable`
are accepted for its sake: products have PyTorch's precision, indices may be in any order, and sorts are stable.
"""

from collections.abc import Callable

import torch

from . import _scatters, _windows
from ._convolution import convolve, Numbers


class OpWindows:
    """Convolutions, windows, gathers and scatters, sorts. The class that has them is made from a tensor."""

    op: torch.Tensor

    @classmethod
    def _combine_by(cls, computation) -> Callable[..., torch.Tensor]:
        """A function of Ops, or a computation, as a function of tensors."""
        return lambda *tensors: cls.call(computation, [cls(tensor) for tensor in tensors]).op

    # ---- Convolutions ----

    def conv(
        self, kernel, window_strides, feature_group_count=1, batch_group_count=1, padding="valid", precision_config=None
    ):
        """[batch, features, ...] by a kernel [features of the output, features, ...]."""
        numbers = Numbers.usual(self.op.dim())
        return self._convolve(kernel, window_strides, padding, numbers, None, feature_group_count, batch_group_count)

    def conv_with_general_padding(
        self, kernel, window_strides, padding, feature_group_count=1, batch_group_count=1, precision_config=None
    ):
        """As conv(), with (before, behind) for each dim of space."""
        return self.conv(kernel, window_strides, feature_group_count, batch_group_count, padding)

    def conv_with_general_dimensions(
        self,
        kernel,
        window_strides,
        input_batch_dimension,
        input_feature_dimension,
        kernel_input_feature_dimension,
        kernel_output_feature_dimension,
        output_batch_dimension,
        output_feature_dimension,
        input_spatial_dimensions,
        kernel_spatial_dimensions,
        output_spatial_dimensions,
        padding="valid",
        feature_group_count=1,
        batch_group_count=1,
        precision_config=None,
    ):
        """As conv(), of dims in any order."""
        return self.conv_general(
            kernel,
            window_strides,
            padding,
            input_batch_dimension,
            input_feature_dimension,
            kernel_input_feature_dimension,
            kernel_output_feature_dimension,
            output_batch_dimension,
            output_feature_dimension,
            input_spatial_dimensions,
            kernel_spatial_dimensions,
            output_spatial_dimensions,
            feature_group_count,
            batch_group_count,
        )

    def conv_general(
        self,
        kernel,
        window_strides,
        padding,
        input_batch_dimension,
        input_feature_dimension,
        kernel_input_feature_dimension,
        kernel_output_feature_dimension,
        output_batch_dimension,
        output_feature_dimension,
        input_spatial_dimensions,
        kernel_spatial_dimensions,
        output_spatial_dimensions,
        feature_group_count=1,
        batch_group_count=1,
        precision_config=None,
    ):
        """As conv(), of dims in any order, with (before, behind) for each dim of space."""
        space = [1] * len(input_spatial_dimensions)
        return self.conv_general_dilated(
            kernel,
            window_strides,
            padding,
            space,
            space,
            input_batch_dimension,
            input_feature_dimension,
            kernel_input_feature_dimension,
            kernel_output_feature_dimension,
            output_batch_dimension,
            output_feature_dimension,
            input_spatial_dimensions,
            kernel_spatial_dimensions,
            output_spatial_dimensions,
            feature_group_count,
            batch_group_count,
        )

    def conv_general_dilated(
        self,
        kernel,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        input_batch_dimension,
        input_feature_dimension,
        kernel_input_feature_dimension,
        kernel_output_feature_dimension,
        output_batch_dimension,
        output_feature_dimension,
        input_spatial_dimensions,
        kernel_spatial_dimensions,
        output_spatial_dimensions,
        feature_group_count=1,
        batch_group_count=1,
        precision_config=None,
    ):
        """As conv_general(), with elements of 0 between those of this and of the kernel."""
        numbers = Numbers(
            input_batch_dimension,
            input_feature_dimension,
            kernel_input_feature_dimension,
            kernel_output_feature_dimension,
            output_batch_dimension,
            output_feature_dimension,
            input_spatial_dimensions,
            kernel_spatial_dimensions,
            output_spatial_dimensions,
        )
        dilations = lhs_dilation, rhs_dilation
        return self._convolve(
            kernel, window_strides, padding, numbers, dilations, feature_group_count, batch_group_count
        )

    def _convolve(self, kernel, strides, padding, numbers, dilations, feature_groups, batch_groups):
        if isinstance(padding, str):
            sizes = [self.op.size(d) for d in numbers.input_spatial]
            windows = [kernel.op.size(d) for d in numbers.kernel_spatial]
            padding = _windows.pairs_of(padding, sizes, windows, strides)
        result = convolve(self.op, kernel.op, strides, padding, numbers, dilations, feature_groups, batch_groups)
        return type(self)(result)

    # ---- Windows ----

    def pad(self, value, config):
        """`config`: for each dim the elements before, behind and between; negative ones before and behind remove
        elements.
        """
        return type(self)(_windows.padded(self.op, value.op, config))

    def reduce_window(self, init_value, computation, window_dimensions, window_strides, padding="valid"):
        """By an associative and commutative function; `padding` is "valid", "same" or (before, behind) for each dim."""
        pads = self._pairs(padding, window_dimensions, window_strides)
        return self._reduce_windows(
            init_value.op, self._combine_by(computation), window_dimensions, window_strides, pads
        )

    def max_pool(self, kernel_size, stride, batch_dimension, feature_dimension, spatial_dimensions, padding="valid"):
        """The maximum of each window. `kernel_size` and `stride` cover all dims, also batch and features."""
        kind = self.op.dtype
        lowest = -torch.inf if kind.is_floating_point else False if kind == torch.bool else torch.iinfo(kind).min
        lowest = torch.full((), lowest, dtype=kind, device=self.op.device)
        pads = self._pairs(padding, kernel_size, stride)
        return self._reduce_windows(lowest, torch.maximum, kernel_size, stride, pads)

    def _reduce_windows(self, init: torch.Tensor, combine: Callable, windows, strides, pads):
        (result,) = _windows.reduce_windows([self.op], [init], lambda *parts: [combine(*parts)], windows, strides, pads)
        return type(self)(result)

    def select_and_scatter(
        self,
        source,
        init_value,
        window_dimensions,
        window_strides,
        select_computation,
        scatter_computation,
        padding="valid",
    ):
        """`init_value` everywhere, with `source` combined into the element that each window selects.

        Args:
            select_computation: gets the chosen element and the next of its window; whether the chosen one stays.
            scatter_computation: gets the present value and an element of `source`; associative and commutative.
            padding: "valid", "same" or (before, behind) for each dim; padding is never selected.
        """
        return type(self)(
            _windows.select_and_scatter(
                self.op,
                source.op,
                init_value.op,
                window_dimensions,
                window_strides,
                self._combine_by(select_computation),
                self._combine_by(scatter_computation),
                self._pairs(padding, window_dimensions, window_strides),
            )
        )

    select_and_scatter_with_general_padding = select_and_scatter

    def _pairs(self, padding, windows, strides):
        return _windows.pairs_of(padding, self.op.shape, windows, strides) if isinstance(padding, str) else padding

    # ---- Indices ----

    def dynamic_slice(self, start_indices, slice_sizes):
        return type(self)(self.op[_scatters.block(self.op, slice_sizes, [start.op for start in start_indices])])

    def dynamic_update_slice(self, update, start_indices):
        places = _scatters.block(self.op, update.op.shape, [start.op for start in start_indices])
        return type(self)(self.op.index_put(places, update.op))

    def gather(
        self,
        start_indices,
        offset_dims,
        collapsed_slice_dims,
        start_index_map,
        index_vector_dim,
        indices_are_sorted=None,
        slice_sizes=None,
    ):
        """The window at each index. `slice_sizes`: by default 1 for the collapsed dims, else the whole extent."""
        if slice_sizes is None:
            slice_sizes = [1 if d in collapsed_slice_dims else size for d, size in enumerate(self.op.shape)]
        return type(self)(
            _scatters.gather(
                self.op,
                start_indices.op,
                offset_dims,
                collapsed_slice_dims,
                start_index_map,
                index_vector_dim,
                slice_sizes,
            )
        )

    def scatter(
        self,
        scatter_indices,
        updates,
        computation,
        update_window_dims,
        inserted_window_dims,
        scatter_dims_to_operand_dims,
        index_vector_dim,
        indices_are_sorted=None,
        unique_indices=None,
    ):
        """This with `updates` combined at the indices; `computation(old, update)` is associative."""
        return type(self)(
            _scatters.scatter(
                self.op,
                scatter_indices.op,
                updates.op,
                self._combine_by(computation),
                update_window_dims,
                inserted_window_dims,
                scatter_dims_to_operand_dims,
                index_vector_dim,
            )
        )

    @classmethod
    def sort(cls, ops, comparator, dimension=None, is_stable=None):
        """Sorts all tensors in one order; returns a tuple of them, or the only one.

        Args:
            comparator: gets two elements of each tensor, (a0, b0, a1, b1, ...); whether the first ones come before.
            dimension: by default the last.
        """
        dim = -1 if dimension is None else dimension
        results = _scatters.sort([op.op for op in ops], cls._combine_by(comparator), dim)
        return cls(results[0] if len(results) == 1 else tuple(results))
