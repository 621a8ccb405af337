// Attention of a few queries, as in decoding: its time is the time of reading keys and values, once.
#pragma once

#include <array>
#include <cstdint>

#include "core/dtype.h"

namespace torch_xla::cpu {

// Strides in elements; rows of `size` numbers are contiguous.
struct Queries {
  using Strides = std::array<int64_t, 3>; // of batch, head and token

  DType dtype; // of all but logsumexp: F32, F16 or BF16
  int64_t batch, heads, key_heads, queries, keys, size; // heads: a multiple of key_heads
  double scale;
  const void* query; // [batch, heads, queries, size]
  const void* key; // [batch, key_heads, keys, size]
  const void* value; // as key
  Strides query_strides, key_strides, value_strides;
  const void* mask = nullptr; // added: [batch, heads, queries, keys]; null: none
  std::array<int64_t, 4> mask_strides{};
  bool is_causal = false; // a query sees the keys up to its own number; for attend_by_blocks() alone
  void* out; // as query
  float* logsumexp; // [batch, heads, queries]
  Strides out_strides, sum_strides;
};

// Whether attend() has code for this processor.
bool can_attend();

// Uses the calling thread's team. Computes in float32, in the same order for any number of threads. Before the first and after the last key
// that some query of the head's group may see, keys and values are not read. A query that sees none has 0 as
// output and logsumexp, as by ATen.
void attend(const Queries& queries);

} // namespace torch_xla::cpu
