// Which pointwise calls the rows take, and which are left to ATen, that it may refuse them.
#include <ATen/MemoryOverlap.h>

#include "tensor/api.h"
#include "tensor/pointwise.h"
#include "tensor/promotion.h"
#include "tensor/recorder.h"

namespace torch_xla {
namespace {

using c10::ScalarType;

ScalarType type_of(const PointwiseArg& arg) {
  if (arg.scalar) {
    return arg.scalar->type();
  }
  return arg.tensor && arg.tensor->defined() ? arg.tensor->scalar_type() : ScalarType::Undefined;
}

// Only a number can be known not to be zero without a sync.
bool may_be_zero(const PointwiseArg& arg) {
  if (arg.tensor && arg.tensor->device().type() == c10::DeviceType::CPU && arg.tensor->dim() == 0) {
    return arg.tensor->item().toDouble() == 0;
  }
  return !arg.scalar || arg.scalar->toDouble() == 0;
}

bool refuses_operands(const Op& op, std::span<const PointwiseArg> args) {
  auto is = [](ScalarType wanted) { return [wanted](const PointwiseArg& arg) { return type_of(arg) == wanted; }; };
  if ((op.traits & kNoBoolOperand) && std::any_of(args.begin(), args.end(), is(ScalarType::Bool))) {
    return true;
  }
  ScalarType first = type_of(args[0]);
  auto differs = [first](const PointwiseArg& arg) { return arg.tensor && type_of(arg) != first; };
  if ((op.traits & kSameDtype) && std::any_of(args.begin(), args.end(), differs)) {
    return true;
  }
  // clamp without bounds.
  auto missing = [](const PointwiseArg& arg) { return type_of(arg) == ScalarType::Undefined; };
  if (args.size() > 1 && std::all_of(args.begin() + 1, args.end(), missing)) {
    return true;
  }
  if ((op.traits & kNonNegative) && args[1].scalar && args[1].scalar->toDouble() < 0) {
    return true;
  }
  if (!(op.traits & kMask)) {
    return false;
  }
  bool where = op.rule == TypeRule::kTail;
  bool many_values = !where && args[2].tensor && args[2].tensor->dim() > 0;
  return many_values || type_of(args[where ? 0 : 1]) != ScalarType::Bool;
}

// Whether ATen refuses a call with arguments of these types.
bool is_refused(const Op& op, std::span<const PointwiseArg> args) {
  ScalarType type = op.rule == TypeRule::kSelf ? type_of(args[0]) : promoted_type(op.rule == TypeRule::kTail ? args.subspan(1) : args);
  bool integral = c10::isIntegralType(type, true);
  if ((op.traits & kDivides) && integral && may_be_zero(args[1])) {
    return true;
  }
  bool wrong_type = op.traits & (integral ? kFloatOnly : kNoFloat) || ((op.traits & kNoBool) && type == ScalarType::Bool);
  return wrong_type || refuses_operands(op, args);
}

} // namespace

bool is_native_call(const Op& op, std::span<const PointwiseArg> args) {
  for (const PointwiseArg& arg : args) {
    if (arg.tensor && arg.tensor->defined() && !is_native_tensor(*arg.tensor)) {
      return false;
    }
    if (arg.scalar && arg.scalar->isComplex()) {
      return false;
    }
  }
  return !(op.traits & kRefuses) || !is_refused(op, args);
}

bool is_native_out(const Op& op, std::span<const PointwiseArg> args, const at::Tensor& out) {
  return is_xla_tensor(out) && out.scalar_type() == result_dtype(op, args);
}

bool overlaps_itself(const at::Tensor& t) {
  return at::has_internal_overlap(t) == at::MemOverlap::Yes;
}

} // namespace torch_xla
