// The part of a call's tensors and numbers in type promotion.
#include "aten/promotion.h"

#include <c10/core/DefaultDtype.h>

#include "trace/cell.h"

namespace torch_xla {
namespace {

DType default_dtype() {
  return to_dtype(c10::get_default_dtype_as_scalartype());
}

// Python's floats have the default dtype.
void add_number(Promotion& promotion, DType type) {
  promotion.add(Promotion::kNumber, is_float(type) ? default_dtype() : type);
}

void add_tensor(Promotion& promotion, const at::Tensor& t) {
  DType type = to_dtype(t.scalar_type());
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) {
    add_number(promotion, type);
  } else {
    promotion.add(t.dim() > 0 ? Promotion::kWithDims : Promotion::kZeroDim, type);
  }
}

} // namespace

bool fits(const at::Scalar& number, DType type) {
  if (!is_native(type)) {
    return true;
  }
  if (number.isComplex()) {
    c10::complex<double> value = number.toComplexDouble();
    return value.imag() == 0 && fits(value.real(), type);
  }
  if (number.isIntegral(/*includeBool=*/true)) {
    bool beyond = number.type() == c10::ScalarType::UInt64; // beyond int64
    return beyond ? is_float(type) && fits(number.toDouble(), type) : fits(number.toLong(), type);
  }
  return fits(number.toDouble(), type);
}

DType promoted_type(std::span<const PointwiseArg> args) {
  Promotion promotion;
  int tensors = 0;
  for (const PointwiseArg& arg : args) {
    if (arg.tensor && arg.tensor->defined()) {
      add_tensor(promotion, *arg.tensor);
      ++tensors;
    }
  }
  // Numbers take part only as the second operand (eq.Scalar, clamp), not as alpha or weight.
  for (const PointwiseArg& arg : args) {
    if (arg.scalar && tensors <= 1) {
      add_number(promotion, to_dtype(arg.scalar->type()));
    }
  }
  return promotion.result();
}

DType common_dtype(const Op& op, std::span<const PointwiseArg> args) {
  switch (op.rule) {
    case TypeRule::kSelf:
      return DType::Undefined;
    case TypeRule::kTail:
      return promoted_type(args.subspan(1));
    case TypeRule::kPromoteFloat: {
      DType type = promoted_type(args);
      return is_integral(type, true) ? default_dtype() : type;
    }
    default:
      return promoted_type(args);
  }
}

DType result_dtype(const Op& op, std::span<const PointwiseArg> args) {
  if (gives_bool(op.rule)) {
    return DType::Bool;
  }
  return op.rule == TypeRule::kSelf ? to_dtype(args[0].tensor->scalar_type()) : common_dtype(op, args);
}

} // namespace torch_xla
