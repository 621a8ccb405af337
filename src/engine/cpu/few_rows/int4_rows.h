// Products of a few rows by a matrix of 4-bit integers as ATen packs them for the CPU, with a scale and a zero for each group of a column.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace torch_xla::cpu {

// out[m, n] = sum over k of a[m, k] * (scale[k / group, n] * (q[k, n] - 8) + zero[k / group, n]). All but q are row-major and of one type:
// F32, F16 or BF16.
struct Int4Product {
  DType dtype;
  int64_t rows, inner, columns; // inner: a multiple of group; columns: of 16
  int64_t group;
  const void* a; // [rows, inner]
  const uint8_t* q; // by _convert_weight_to_int4pack_for_cpu
  const void* scales_and_zeros; // [inner / group, columns, 2]
  void* out; // [rows, columns]; shares no memory with the others
};

// The columns of a block, in which ATen packs them here; 0 if multiply_int4_rows() has no code for that order.
int64_t int4_block();

// Uses the calling thread's team. Each number is summed in float32, in the same order for any number of threads, and rounded once.
void multiply_int4_rows(const Int4Product& product);

} // namespace torch_xla::cpu
