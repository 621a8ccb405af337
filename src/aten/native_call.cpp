// Checks of arguments by the traits for ATen's refusals, and tensors that overlap.
#include "aten/native_call.h"

#include <algorithm>

#include "aten/promotion.h"
#include "engine/engine.h"
#include "ir/view.h"
#include "recording/recording.h"

namespace torch_xla {
namespace {

DType type_of(const PointwiseArg& arg) {
  if (arg.scalar) {
    return to_dtype(arg.scalar->type());
  }
  return arg.tensor && arg.tensor->defined() ? to_dtype(arg.tensor->scalar_type()) : DType::Undefined;
}

// The argument's number; none for device tensors.
std::optional<at::Scalar> number_of(const PointwiseArg& arg) {
  if (arg.scalar) {
    return *arg.scalar;
  }
  bool on_host = arg.tensor && arg.tensor->defined() && arg.tensor->device().type() == c10::DeviceType::CPU;
  return on_host && arg.tensor->dim() == 0 ? std::optional<at::Scalar>(arg.tensor->item()) : std::nullopt;
}

// Whether ATen raises for an integer division, or may raise and its kernel is not available. A number may wrap to zero in the division's
// type; few kernels divide bools.
bool refuses_division(const PointwiseArg& divisor, DType type) {
  std::optional<at::Scalar> number = number_of(divisor);
  return number ? wrap_to(type, number->toLong()) == 0 : type == DType::Bool || !engine().runs_library_calls();
}

// A device value fits if its type does. Releases of ATen differ for negative numbers in unsigned types: they wrap or saturate.
bool argument_fits(const PointwiseArg& arg, DType type, bool wraps) {
  std::optional<at::Scalar> number = number_of(arg);
  if (number && type == DType::U8 && !wraps && number->toDouble() < 0) {
    return false;
  }
  return number ? fits(*number, type) : all_fit(type_of(arg), type);
}

bool refuses_numbers(const Op& op, std::span<const PointwiseArg> args, DType type) {
  const bool fills = op.traits & kFills; // with its last argument, a number or a tensor
  return std::any_of(args.begin(), args.end(), [&](const PointwiseArg& arg) {
    return (arg.scalar || (fills && &arg == &args.back())) && !argument_fits(arg, type, fills);
  });
}

bool refuses_operands(const Op& op, std::span<const PointwiseArg> args) {
  auto is = [](DType wanted) { return [wanted](const PointwiseArg& arg) { return type_of(arg) == wanted; }; };
  if ((op.traits & kNoBoolOperand) && std::any_of(args.begin(), args.end(), is(DType::Bool))) {
    return true;
  }
  DType first = type_of(args[0]);
  auto differs = [first](const PointwiseArg& arg) { return arg.tensor && type_of(arg) != first; };
  if ((op.traits & kSameDtype) && std::any_of(args.begin(), args.end(), differs)) {
    return true;
  }
  // clamp without bounds.
  auto missing = [](const PointwiseArg& arg) { return type_of(arg) == DType::Undefined; };
  if (args.size() > 1 && std::all_of(args.begin() + 1, args.end(), missing)) {
    return true;
  }
  if (op.rule == TypeRule::kTail) {
    return first != DType::Bool;
  }
  return (op.traits & kFills) && ((args[2].tensor && args[2].tensor->dim() > 0) || type_of(args[1]) != DType::Bool);
}

// Whether ATen refuses a call with arguments of these types.
bool is_refused(const Op& op, std::span<const PointwiseArg> args) {
  DType type = op.rule == TypeRule::kSelf ? type_of(args[0]) : promoted_type(op.rule == TypeRule::kTail ? args.subspan(1) : args);
  bool integral = is_integral(type, true);
  if ((op.traits & kDivides) && integral && refuses_division(args[1], type)) {
    return true;
  }
  if ((op.traits & kNumbersFit) && refuses_numbers(op, args, type)) {
    return true;
  }
  bool wrong_type = op.traits & (integral ? kFloatOnly : kNoFloat) || ((op.traits & kNoBool) && type == DType::Bool);
  return wrong_type || refuses_operands(op, args);
}

// Refuses some factors other than 1, the usual one.
bool refuses_alpha(const Op& op, std::span<const PointwiseArg> args) {
  const at::Scalar& alpha = *args.back().scalar;
  if (has_unit_alpha(op, args)) {
    return false;
  }
  DType type = promoted_type(args.first(args.size() - 1));
  bool kind_fits = alpha.isBoolean() ? type == DType::Bool : is_float(type) || alpha.isIntegral(false);
  return !kind_fits || !fits(alpha, type);
}

} // namespace

bool has_unit_alpha(const Op& op, std::span<const PointwiseArg> args) {
  return (op.traits & kUnitAlpha) && args.back().scalar->equal(int64_t{1});
}

bool divides_by_data(const Op& op, std::span<const PointwiseArg> args, DType result) {
  return (op.traits & kDivides) && is_integral(result, false) && !number_of(args[1]);
}

bool is_native_call(const Op& op, std::span<const PointwiseArg> args) {
  for (const PointwiseArg& arg : args) {
    // An undefined tensor stands for a missing gradient in formulas of autograd: eager's layers refuse it.
    if (arg.tensor && (!arg.tensor->defined() || !is_native_tensor(*arg.tensor))) {
      return false;
    }
    if (arg.scalar && !is_native(to_dtype(arg.scalar->type()))) {
      return false;
    }
  }
  if ((op.traits & kUnitAlpha) && refuses_alpha(op, args)) {
    return false;
  }
  return !((op.traits & kRefuses) || op.rule == TypeRule::kTail) || !is_refused(op, args);
}

bool is_native_out(const Op& op, std::span<const PointwiseArg> args, const at::Tensor& out) {
  return is_xla_tensor(out) && to_dtype(out.scalar_type()) == result_dtype(op, args) && !overlaps_itself(out);
}

bool is_writable_out(const at::Tensor& out) {
  return is_xla_tensor(out) && is_native(to_dtype(out.scalar_type())) && !overlaps_itself(out);
}

// True also for strides that only might overlap: ATen takes those.
bool overlaps_itself(const at::Tensor& t) {
  return !t.is_non_overlapping_and_dense() && t.numel() > 0 && !shows_each_once(to_dims(t.sizes()), to_dims(t.strides()));
}

} // namespace torch_xla
