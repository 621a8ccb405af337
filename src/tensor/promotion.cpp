// Categories of operands and how they combine.
#include "tensor/promotion.h"

#include <c10/core/DefaultDtype.h>
#include <c10/util/TypeCast.h>

namespace torch_xla {
namespace {

using c10::ScalarType;

// at::result_type's three categories: tensors with dims, 0-d tensors, numbers.
class Promotion {
 public:
  void add(const at::Tensor& t) {
    ScalarType type = t.scalar_type();
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) {
      merge(number_, c10::isFloatingType(type) ? c10::get_default_dtype_as_scalartype() : type);
    } else {
      merge(t.dim() > 0 ? dims_ : zero_, type);
    }
  }
  void add(const at::Scalar& s) {
    merge(number_, s.isFloatingPoint() ? c10::get_default_dtype_as_scalartype() : s.type());
  }
  ScalarType result() const {
    return combine(dims_, combine(zero_, number_));
  }

 private:
  static void merge(ScalarType& into, ScalarType type) {
    into = into == ScalarType::Undefined || into == type ? type : c10::promoteTypes(into, type);
  }
  static int kind(ScalarType t) {
    return c10::isFloatingType(t) ? 2 : t == ScalarType::Bool ? 0 : 1;
  }
  static ScalarType combine(ScalarType higher, ScalarType lower) {
    if (higher == ScalarType::Undefined) {
      return lower;
    }
    bool lifts = lower != ScalarType::Undefined && kind(lower) > kind(higher);
    return lifts ? c10::promoteTypes(higher, lower) : higher;
  }

  ScalarType dims_ = ScalarType::Undefined;
  ScalarType zero_ = ScalarType::Undefined;
  ScalarType number_ = ScalarType::Undefined;
};

template <class T>
bool fits_as(const at::Scalar& number) {
  if (number.isComplex()) {
    return !c10::overflows<T>(number.toComplexDouble());
  }
  return number.isFloatingPoint() ? !c10::overflows<T>(number.toDouble()) : !c10::overflows<T>(number.toLong());
}

} // namespace

bool fits(const at::Scalar& number, ScalarType type) {
  switch (type) {
#define XLA_FITS(T, NAME) \
  case ScalarType::NAME:  \
    return fits_as<T>(number);
    AT_FORALL_SCALAR_TYPES_AND3(Bool, Half, BFloat16, XLA_FITS)
#undef XLA_FITS
    default:
      return true;
  }
}

ScalarType promoted_type(std::span<const PointwiseArg> args) {
  Promotion promotion;
  int tensors = 0;
  for (const PointwiseArg& arg : args) {
    if (arg.tensor && arg.tensor->defined()) {
      promotion.add(*arg.tensor);
      ++tensors;
    }
  }
  // Numbers take part only where they stand for the second operand (eq.Scalar, clamp), not as alpha or weight.
  for (const PointwiseArg& arg : args) {
    if (arg.scalar && tensors <= 1) {
      promotion.add(*arg.scalar);
    }
  }
  return promotion.result();
}

ScalarType result_dtype(const Op& op, std::span<const PointwiseArg> args) {
  switch (op.rule) {
    case TypeRule::kCompare:
    case TypeRule::kBool:
      return ScalarType::Bool;
    case TypeRule::kSelf:
      return args[0].tensor->scalar_type();
    case TypeRule::kTail:
      return promoted_type(args.subspan(1));
    case TypeRule::kPromote:
      return promoted_type(args);
    case TypeRule::kPromoteFloat: {
      ScalarType type = promoted_type(args);
      return c10::isIntegralType(type, true) ? c10::get_default_dtype_as_scalartype() : type;
    }
  }
  return ScalarType::Undefined;
}

} // namespace torch_xla
