// What strides say of memory. Strides are in elements and not negative.
#pragma once

#include "ir/type.h"

namespace torch_xla {

// Dims by their stride, slowest first; dims of one element come first, as their stride says nothing.
Dims memory_order(const Dims& dims, const Dims& strides);
// Strides are a permutation of dense row-major ones.
bool is_dense(const Dims& dims, const Dims& strides);
// Equal addresses: extents of 1 do not count.
bool same_strides(const Dims& dims, const Dims& a, const Dims& b);
// The same addresses without strides of 0 in dims of one element, at which some of ATen's kernels look.
Dims readable_strides(const Dims& dims, Dims strides);
// Dense memory of matrices, each column by column.
Dims column_major_strides(const Dims& dims);
// Dense memory of [batch, length, heads, size] seen as [batch, heads, length, size], with or without the last dim.
Dims heads_last_strides(const Dims& dims);
// Of a Fourier transform over some dims, by ATen's CPU kernels: those lie innermost, the others by their strides.
Dims spectrum_strides(const Type& from, const Dims& strides, const Dims& over, const Type& to);
// Number of elements from the first to the last address.
int64_t span_elements(const Dims& dims, const Dims& strides);

} // namespace torch_xla
