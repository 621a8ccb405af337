// Padding and pixel shuffles: calls of ATen's kernels, and constant padding.
#include "core/errors.h"
#include "ops/math.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// ---- Padding: attribute pad, from the last dim on, before and after ----

Dims padded_dims(const InferContext& c) {
  Dims dims = c.operand(0).dims;
  Dims pad = c.get_dims(0);
  if (pad.size() % 2 || pad.size() > 2 * dims.size()) {
    fall_back("padding of this rank");
  }
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    int64_t& d = dims[dims.size() - 1 - i];
    if (d + std::min<int64_t>(pad[2 * i], 0) + std::min<int64_t>(pad[2 * i + 1], 0) < 0) { // ATen cuts before it adds
      fall_back("pads that cut more than the input has");
    }
    d += pad[2 * i] + pad[2 * i + 1];
  }
  return dims;
}

// Pads of reflection are less than the extent, pads of replication not negative, and the input is not empty.
template <bool Reflects>
void infer_border_pad(InferContext& c) {
  if (c.operand(0).dtype == DType::Bool) {
    fall_back("padding of Bool");
  }
  Dims dims = c.operand(0).dims;
  Dims pad = c.get_dims(0);
  Dims padded = padded_dims(c);
  bool fits = num_elements(padded) > 0 && num_elements(dims) > 0 && dims.size() > pad.size() / 2;
  for (size_t i = 0; fits && i < pad.size(); ++i) {
    fits = pad[i] >= 0 && (!Reflects || pad[i] < dims[dims.size() - 1 - i / 2]);
  }
  if (!fits || dims.size() > pad.size() / 2 + 2) {
    fall_back("padding of this size");
  }
  c.add_result(c.operand(0).dtype, padded);
}

void infer_pad(InferContext& c) {
  require_fit(c, 1);
  c.add_result(c.operand(0).dtype, padded_dims(c));
}

// The part of the source that is kept, and where it goes.
struct Placement {
  Dims kept;
  int64_t from = 0;
  int64_t to = 0;
};

Placement place(const Dims& source, const Dims& target, const Dims& pad) {
  Placement p{source};
  Dims source_strides = contiguous_strides(source);
  Dims target_strides = contiguous_strides(target);
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    size_t d = source.size() - 1 - i;
    int64_t before = pad[2 * i];
    p.kept[d] += std::min<int64_t>(before, 0) + std::min<int64_t>(pad[2 * i + 1], 0);
    p.from += std::max<int64_t>(-before, 0) * source_strides[d];
    p.to += std::max<int64_t>(before, 0) * target_strides[d];
  }
  return p;
}

void expand_pad(ExpandContext& c) {
  Dims source = c.operand(0).dims;
  Dims target = c.result_type(0).dims;
  Placement p = place(source, target, c.get_dims(0));
  ValueId fill = c.b().constant(c.get_double(1, 0), c.result_type(0).dtype);
  ValueId base = c.b().broadcast(fill, target);
  if (std::all_of(p.kept.begin(), p.kept.end(), [](int64_t d) { return d > 0; })) {
    ValueId part = c.b().view(c.raw(0).id(), contiguous_strides(source), p.kept, contiguous_strides(source), p.from);
    base = c.b().view_update(base, part, contiguous_strides(target), contiguous_strides(target), p.to);
  }
  c.set(0, {&c.b(), base});
}

// ---- pixel_shuffle: attribute factor ----

void infer_pixel_shuffle(InferContext& c) {
  Dims dims = c.operand(0).dims;
  int64_t r = c.get_int(0);
  if (dims.size() < 3 || r <= 0 || dims[dims.size() - 3] % (r * r)) {
    fall_back("pixel_shuffle of these sizes");
  }
  dims[dims.size() - 3] /= r * r;
  dims[dims.size() - 2] *= r;
  dims[dims.size() - 1] *= r;
  c.add_result(c.operand(0).dtype, dims);
}

void infer_pixel_unshuffle(InferContext& c) {
  Dims dims = c.operand(0).dims;
  int64_t r = c.get_int(0);
  bool divides = dims.size() >= 3 && r > 0 && dims[dims.size() - 2] % r == 0 && dims[dims.size() - 1] % r == 0;
  if (!divides || num_elements(dims) == 0) { // ATen gives an empty input back as it is
    fall_back("pixel_unshuffle of these sizes");
  }
  dims[dims.size() - 3] *= r * r;
  dims[dims.size() - 2] /= r;
  dims[dims.size() - 1] /= r;
  c.add_result(c.operand(0).dtype, dims);
}

#define PAD(NAME, REFLECTS) \
  SPATIAL(NAME, infer_border_pad<REFLECTS>, .traits = kComplex), SPATIAL(NAME "_backward", like_operand<1>, .traits = kComplex)

constinit const Op kRows[] = {
    COMPOSITE("constant_pad_nd", infer_pad, expand_pad, .layout = ResultLayout::kPad, .traits = kComplex),
    PAD("reflection_pad1d", true),
    PAD("reflection_pad2d", true),
    PAD("reflection_pad3d", true),
    PAD("replication_pad1d", false),
    PAD("replication_pad2d", false),
    PAD("replication_pad3d", false),
    SPATIAL("pixel_shuffle", infer_pixel_shuffle, .traits = kComplex | kMovesElements),
    SPATIAL("pixel_unshuffle", infer_pixel_unshuffle, .traits = kComplex | kMovesElements),
};

} // namespace

std::span<const Op> pad_ops() {
  return kRows;
}

} // namespace torch_xla
