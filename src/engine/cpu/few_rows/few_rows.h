// Products of a few rows by a matrix of float32 numbers, of 16-bit floats, or of integers with scales: their time is the time of reading
// the matrix. On processors that are not Intel's, MKL copies the matrix first (docs/decisions/products.md).
#pragma once

#include <array>
#include <cstdint>

#include "core/dtype.h"

namespace torch_xla::cpu {

// out[m, n] = scale[n] * sum over k of a[m, k] * b[k, n], + bias[m, n]. `a` and `out` are row-major and of one type: F32, F16 or BF16.
struct RowProduct {
  DType dtype; // of a, out, bias and scales
  int64_t rows, inner, columns;
  const void* a; // [rows, inner]
  const void* b; // [inner, columns]
  DType b_dtype; // dtype; or I8, transposed, with scales
  int64_t b_stride; // in elements: between rows, or between columns if b_is_transposed
  bool b_is_transposed; // columns of b are contiguous; else its rows are
  void* out; // [rows, columns]; shares no memory with the others
  const void* bias = nullptr; // null: none
  std::array<int64_t, 2> bias_strides{}; // in elements
  const void* scales = nullptr; // [columns]; null: ones
};

// Whether multiply_rows() has code for this processor.
bool can_multiply_rows();

// Uses the calling thread's team. Each number is summed in float32, in the same order for any number of threads, and rounded once.
void multiply_rows(const RowProduct& product);

} // namespace torch_xla::cpu
