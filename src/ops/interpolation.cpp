// Interpolation of images, forward and backward: calls of ATen's kernels. These rules give only extents, not the memory format.
#include <algorithm>

#include "core/errors.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// Operand [B, C, N extents]; attribute output size.
template <size_t N>
void infer_upsample(InferContext& c) {
  require_float(c, 0);
  Dims in = c.operand(0).dims;
  Dims to = c.get_dims(0);
  if (in.size() != N + 2 || to.size() != N) {
    fall_back("interpolation of this rank");
  }
  Dims out{in[0], in[1]};
  for (int64_t size : to) {
    out.push_back(size);
  }
  auto is_empty = [](int64_t size) { return size <= 0; };
  if (std::any_of(out.begin() + 1, out.end(), is_empty) || std::any_of(in.begin() + 1, in.end(), is_empty)) {
    fall_back("interpolation without elements"); // which ATen refuses
  }
  c.add_result(c.operand(0).dtype, std::move(out));
}

// Attributes output size, input size.
void infer_upsample_backward(InferContext& c) {
  c.add_result(c.operand(0).dtype, c.get_dims(1));
}

#define UPSAMPLE(NAME, RANK) SPATIAL(NAME, infer_upsample<RANK>), SPATIAL(NAME "_backward", infer_upsample_backward)

constinit const Op kRows[] = {
    UPSAMPLE("upsample_nearest1d", 1),
    UPSAMPLE("upsample_nearest2d", 2),
    UPSAMPLE("upsample_nearest3d", 3),
    UPSAMPLE("_upsample_nearest_exact1d", 1),
    UPSAMPLE("_upsample_nearest_exact2d", 2),
    UPSAMPLE("_upsample_nearest_exact3d", 3),
    UPSAMPLE("upsample_linear1d", 1),
    UPSAMPLE("upsample_bilinear2d", 2),
    UPSAMPLE("upsample_trilinear3d", 3),
    SPATIAL("upsample_bicubic2d", infer_upsample<2>),
    LIBRARY("upsample_bicubic2d_backward", infer_upsample_backward),
    CALL("_upsample_bilinear2d_aa", kFloats),
    CALL("_upsample_bilinear2d_aa_backward", kFloats),
    CALL("_upsample_bicubic2d_aa", kFloats),
    CALL("_upsample_bicubic2d_aa_backward", kFloats),
    CALL("_upsample_lanczos2d_aa", kFloats),
    CALL("_upsample_lanczos2d_aa_backward", kFloats),
};

} // namespace

std::span<const Op> interpolation_ops() {
  return kRows;
}

} // namespace torch_xla
