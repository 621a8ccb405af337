// Rows that the recorder itself uses: constants, ranges, conversion.
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

DType dtype_attr(const InferContext& c) {
  return static_cast<DType>(c.get_int(0));
}

// Operand: the value. Attributes: dtype, dims.
void infer_full(InferContext& c) {
  c.add_result(dtype_attr(c), c.get_dims(1));
}
void expand_full(ExpandContext& c) {
  c.set(0, c.raw(0));
}

// Operands: start, step. Attributes: dtype, length.
void infer_arange(InferContext& c) {
  c.add_result(dtype_attr(c), {c.get_int(1)});
}
void expand_arange(ExpandContext& c) {
  DType result = c.result_type(0).dtype;
  bool integral = is_integral(c.raw(0).dtype(), true) && is_integral(c.raw(1).dtype(), true);
  DType type = integral ? DType::I64 : compute_type(result) == DType::F32 ? DType::F32 : DType::F64;
  Ex index{&c.b(), c.b().iota(c.result_type(0).dims, 0, type)};
  c.set(0, c.raw(0).to(type) + index * c.raw(1).to(type));
}

// Operand: any. Attribute: dtype.
void infer_convert(InferContext& c) {
  c.add_result(dtype_attr(c), c.operand(0).dims);
}
void expand_convert(ExpandContext& c) {
  c.set(0, c.raw(0));
}

constexpr Op kRows[] = {
    {.name = "xla::full", .kind = OpKind::kComposite, .infer = infer_full, .expand = expand_full},
    {.name = "xla::arange", .kind = OpKind::kComposite, .infer = infer_arange, .expand = expand_arange},
    {.name = "xla::convert", .kind = OpKind::kComposite, .infer = infer_convert, .expand = expand_convert},
};

} // namespace

std::span<const Op> create_ops() {
  return kRows;
}

} // namespace torch_xla
