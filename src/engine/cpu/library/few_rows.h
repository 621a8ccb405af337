// Products of a few float32 rows by a matrix of float32 or 16-bit floats. On processors that are not Intel's, MKL copies the matrix first
// (docs/decisions/0008).
#pragma once

#include <cstdint>

namespace torch_xla::cpu {

// out[m, n] += sum over k of a[m, k] * b[k, n]. `a` and `out` are row-major.
struct RowProduct {
  const float* a; // [rows, inner]
  float* out; // [rows, columns]; shares no memory with a and b
  int64_t rows, inner, columns;
  int64_t b_stride; // in elements: between rows, or between columns if b_is_transposed
  bool b_is_transposed; // columns of b are contiguous; else its rows are
};

// Whether add_row_product() has code for this processor.
bool can_multiply_rows();

// `b`: [inner, columns]. Uses the calling thread's team. Each number is summed in float32, in the same order for any number of threads. T:
// float, c10::Half or c10::BFloat16.
template <typename T>
void add_row_product(const RowProduct& product, const T* b);

} // namespace torch_xla::cpu
