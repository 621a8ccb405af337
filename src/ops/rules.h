// Shape rules that rows of several families share. All throw UserError in ATen's words for bad arguments.
#pragma once

#include <string>
#include <vector>

#include "ir/builder.h"

namespace torch_xla {

// Hands the call to the CPU fallback, where ATen computes it or raises its error.
[[noreturn]] void fall_back(const std::string& reason);

// dim in [0, max(rank, 1)).
int64_t wrap_dim(int64_t dim, size_t rank);
// Dims of a reduction: an empty list means all.
Dims wrap_dims(const Dims& dims, size_t rank);
Dims all_dims(size_t rank);
bool expands_to(const Dims& from, const Dims& dims); // broadcasting `from` gives `dims`
// Extents after a reduction.
Dims reduced_dims(const Dims& from, const Dims& over, bool keepdim);
// Extents after a reduction, for the builder's reductions, which keep dims as 1.
inline Dims kept_dims(const Dims& from, const Dims& over) {
  return reduced_dims(from, over, true);
}
// Number of elements that are reduced to one element of the result.
int64_t reduced_count(const Dims& from, const Dims& over);

std::string sizes_text(const Dims& dims); // [2, 3], as in ATen's errors
std::string product_text(const Dims& dims); // 2x3

// A dtype attribute; None gives `otherwise`.
DType get_dtype(const InferContext& context, size_t i, DType otherwise);
// One flag of a bool[] attribute.
bool get_flag(const InferContext& context, size_t i, size_t flag);
// Entry `i` of an int[n] attribute; a single entry stands for all, an empty list gives `otherwise`.
int64_t pick(const Dims& list, size_t i, int64_t otherwise);

// Both operands' dtype; falls back if they differ: only pointwise rows promote.
DType same_dtype(const InferContext& context, size_t a, size_t b);
void require_float(const InferContext& context, size_t i);
// Throws if operand 0 has no elements, for operations that pick one.
void require_elements(const InferContext& context);
// ATen's kernels that order elements refuse Bool.
void require_ordered(const InferContext& context);
// Checks that attribute `i` fits into the type of operand 0, to which ATen converts it.
void require_fit(const InferContext& context, size_t i);
void require_rank(const InferContext& context, size_t i, size_t rank, const char* message);

// `Infer` if the type of operand 0 is in the DTypeSet; others fall back to the CPU, where ATen refuses them.
template <uint32_t Types, void (*Infer)(InferContext&)>
void of_types(InferContext& c) {
  if (!(set_of(c.operand(0).dtype) & Types)) {
    fall_back("a type that ATen refuses");
  }
  Infer(c);
}

// Result types that many rows share: the type of operand I.
template <size_t I>
void like_operand(InferContext& c) {
  Type type = c.operand(I);
  c.add_result(type.dtype, type.dims);
}
template <size_t I>
void like_float_operand(InferContext& c) {
  require_float(c, I);
  like_operand<I>(c);
}
// Elements of operand 0 and their indices along the dim in attribute Dim; keepdim is the next attribute.
template <size_t Dim>
void infer_values_indices(InferContext& c) {
  require_elements(c);
  const Type type = c.operand(0);
  const Dims dims = reduced_dims(type.dims, wrap_dims(c.get_dims(Dim), type.dims.size()), c.get_bool(Dim + 1));
  c.add_result(type.dtype, dims);
  c.add_result(DType::I64, dims);
}

// ---- Advanced indexing: operands self, indices (None for a whole dim), ...; attribute 0: how many indices ----

struct IndexedPart {
  std::vector<size_t> dims; // dims of self that have an index
  Dims points; // the indices, broadcast; a mask counts as one point, because the number of its true elements is data
  size_t at = 0; // of the points among self's other dims
  size_t after = 0; // how many of these follow the points
};
bool is_mask(const InferContext& c, size_t i); // operand i is given and is a mask: it indexes all of its dims
IndexedPart read_indices(const InferContext& c);
// The number of a mask's true elements, from the last dim of the other indices or else of the values; 1: unknown.
int64_t known_places(const IndexedPart& part, const Dims& values);

// Whether a power of floats is a product, a root or a quotient of them: ATen has a special kernel for it.
bool is_simple_power(double exponent);

} // namespace torch_xla
