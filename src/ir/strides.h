// Questions about strides. Strides are in elements and not negative.
#pragma once

#include "ir/type.h"

namespace torch_xla {

// Dims by their stride, slowest first; dims of one element come first, as their stride has no effect.
Dims memory_order(const Dims& dims, const Dims& strides);
// Strides are a permutation of dense row-major ones.
bool is_dense(const Dims& dims, const Dims& strides);
// Whether both address the same elements: extents of 1 do not count.
bool same_strides(const Dims& dims, const Dims& a, const Dims& b);
// The same addresses without strides of 0 in dims of one element: some of ATen's kernels read these.
Dims readable_strides(const Dims& dims, Dims strides);
// Dense memory of matrices, each column by column.
Dims column_major_strides(const Dims& dims);
// Dense memory of [batch, length, heads, size] seen as [batch, heads, length, size], with or without the last dim.
Dims heads_last_strides(const Dims& dims);
// Strides of a Fourier transform's result over some dims, by ATen's CPU kernels: these dims lie innermost, the others in the order of their
// strides.
Dims spectrum_strides(const Type& from, const Dims& strides, const Dims& over, const Type& to);
// Number of elements from the first to the last address.
int64_t span_elements(const Dims& dims, const Dims& strides);

} // namespace torch_xla
