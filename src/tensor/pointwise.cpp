// Promotion, broadcasting, strides and the three calling conventions of pointwise rows.
#include "tensor/pointwise.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <c10/core/DefaultDtype.h>

#include "core/errors.h"
#include "tensor/api.h"
#include "tensor/recorder.h"

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

Dims broadcast_dims(std::span<const PointwiseArg> args) {
  const at::Tensor* first = nullptr;
  Dims dims;
  for (const PointwiseArg& arg : args) {
    if (!arg.tensor || !arg.tensor->defined()) {
      continue;
    }
    if (!first) {
      first = arg.tensor;
      dims = to_dims(first->sizes());
    } else if (arg.tensor->sizes() != to_ref(dims)) {
      auto merged = at::infer_size_dimvector(to_ref(dims), arg.tensor->sizes());
      dims = Dims(merged.data(), merged.size());
    }
  }
  return dims;
}

// Operand strides over the result's dims, 0 where the operand is broadcast.
Dims expanded_strides(const at::Tensor& t, const Dims& dims) {
  Dims strides(dims.size(), 0);
  size_t lead = dims.size() - static_cast<size_t>(t.dim());
  for (int64_t i = 0; i < t.dim(); ++i) {
    size_t d = lead + static_cast<size_t>(i);
    strides[d] = t.size(i) == 1 && dims[d] != 1 ? 0 : t.stride(i);
  }
  return strides;
}

// 1: dim a should lie outside dim b, -1: inside, 0: no operand tells.
int compare_dims(size_t a, size_t b, const Dims& dims, const std::vector<Dims>& operands) {
  for (const Dims& strides : operands) {
    int64_t sa = strides[a];
    int64_t sb = strides[b];
    if (sa == 0 || sb == 0) {
      continue;
    }
    if (sa != sb) {
      return sa < sb ? -1 : 1;
    }
    if (dims[a] > dims[b]) {
      return 1;
    }
  }
  return 0;
}

// Dims from the innermost outwards: TensorIterator's insertion sort, which starts from row-major.
std::vector<size_t> memory_order(const Dims& dims, const std::vector<Dims>& operands) {
  std::vector<size_t> order(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    order[i] = dims.size() - 1 - i;
  }
  for (size_t i = 1; i < order.size(); ++i) {
    size_t moving = i;
    for (size_t j = i; j-- > 0;) {
      int comparison = compare_dims(order[j], order[moving], dims, operands);
      if (comparison > 0) {
        std::swap(order[j], order[moving]);
        moving = j;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  return order;
}

bool all_contiguous(const Dims& dims, std::span<const PointwiseArg> args) {
  for (const PointwiseArg& arg : args) {
    if (arg.tensor && arg.tensor->defined() && arg.tensor->dim() > 0 &&
        !(arg.tensor->sizes() == to_ref(dims) && arg.tensor->is_contiguous())) {
      return false;
    }
  }
  return true;
}

void check_writable(const at::Tensor& out, std::span<const PointwiseArg> args) {
  at::assert_no_internal_overlap(out);
  for (const PointwiseArg& arg : args) {
    if (arg.tensor && arg.tensor->defined() && !arg.tensor->is_same(out) && arg.tensor->device() == out.device()) {
      at::assert_no_partial_overlap(out, *arg.tensor);
    }
  }
}

void check_dims(const PointwiseResult& result, const at::Tensor& out) {
  TORCH_CHECK(
      to_ref(result.type.dims) == out.sizes(),
      "output with shape ",
      out.sizes(),
      " doesn't match the broadcast shape ",
      to_ref(result.type.dims));
}

void check_cast(const PointwiseResult& result, const at::Tensor& out) {
  ScalarType from = to_scalar_type(result.type.dtype);
  TORCH_CHECK(c10::canCast(from, out.scalar_type()), "result type ", from, " can't be cast to the desired output type ", out.scalar_type());
}

bool is_one(const at::Scalar& s) {
  return s.isFloatingPoint() ? s.toDouble() == 1.0 : s.isIntegral(false) && s.toLong() == 1;
}

ValueId record_node(Recording& recording, const Op& op, const PointwiseResult& result, std::span<const PointwiseArg> args, Attrs attrs) {
  InlineVec<ValueId, 4> operands;
  if ((op.traits & kUnitAlpha) && is_one(*args.back().scalar)) {
    args = args.first(args.size() - 1);
  }
  for (const PointwiseArg& arg : args) {
    if (arg.scalar) {
      operands.push_back(recording.scalar(*arg.scalar));
    } else {
      operands.push_back(arg.tensor && arg.tensor->defined() ? recording.read_operand(*arg.tensor) : kNoValue);
    }
  }
  return recording.node(op, std::move(operands), std::move(attrs), result.type);
}

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

Dims iterator_strides(const Dims& dims, std::span<const PointwiseArg> args) {
  if (all_contiguous(dims, args)) {
    return {};
  }
  std::vector<Dims> operands;
  for (const PointwiseArg& arg : args) {
    if (arg.tensor && arg.tensor->defined() && arg.tensor->dim() > 0) {
      operands.push_back(expanded_strides(*arg.tensor, dims));
    }
  }
  std::vector<size_t> order = memory_order(dims, operands);
  if (std::is_sorted(order.rbegin(), order.rend())) {
    return {};
  }
  Dims strides(dims.size(), 1);
  int64_t step = 1;
  for (size_t d : order) {
    strides[d] = step;
    step *= dims[d];
  }
  return strides;
}

namespace {

// The common case: tensors of one type and one contiguous shape, and a rule that keeps it.
bool infer_uniform(const Op& op, std::span<const PointwiseArg> args, PointwiseResult& result) {
  const at::Tensor* first = args[0].tensor;
  if (!first || first->dim() == 0 || !first->is_contiguous() || (op.rule != TypeRule::kPromote && op.rule != TypeRule::kSelf)) {
    return false;
  }
  int tensors = 0;
  for (const PointwiseArg& arg : args) {
    bool same = arg.tensor && arg.tensor->defined() && arg.tensor->scalar_type() == first->scalar_type() &&
        arg.tensor->sizes() == first->sizes() && arg.tensor->is_contiguous();
    if (!same && !arg.scalar) {
      return false;
    }
    tensors += same;
  }
  // A lone number may lift the type of the tensor.
  if (tensors < 2 && args.size() > 1 && op.rule == TypeRule::kPromote) {
    return false;
  }
  result.type.dtype = to_dtype(first->scalar_type());
  result.type.dims = to_dims(first->sizes());
  return true;
}

} // namespace

PointwiseResult infer_pointwise(const Op& op, std::span<const PointwiseArg> args) {
  PointwiseResult result;
  if (infer_uniform(op, args, result)) {
    return result;
  }
  result.type.dims = broadcast_dims(args);
  result.type.dtype = to_dtype(result_dtype(op, args));
  result.strides = iterator_strides(result.type.dims, args);
  return result;
}

at::Tensor record_functional(const Op& op, std::span<const PointwiseArg> args, Attrs attrs) {
  PointwiseResult result = infer_pointwise(op, args);
  Recording recording;
  return recording.wrap(record_node(recording, op, result, args, std::move(attrs)), result.strides);
}

void record_inplace(const Op& op, const at::Tensor& self, std::span<const PointwiseArg> args, Attrs attrs) {
  PointwiseResult result = infer_pointwise(op, args);
  check_dims(result, self);
  check_cast(result, self);
  check_writable(self, args);
  Recording recording;
  recording.write_converted(self, record_node(recording, op, result, args, std::move(attrs)));
}

void record_out(const Op& op, const at::Tensor& out, std::span<const PointwiseArg> args, Attrs attrs) {
  PointwiseResult result = infer_pointwise(op, args);
  TORCH_CHECK(is_xla_tensor(out), "Expected out tensor to be on the xla device, but got ", out.device());
  check_cast(result, out);
  bool reads_out = std::any_of(args.begin(), args.end(), [&](const PointwiseArg& arg) { return arg.tensor && arg.tensor->is_same(out); });
  if (reads_out) {
    check_dims(result, out);
  }
  at::native::resize_output(out, to_ref(result.type.dims));
  check_writable(out, args);
  Recording recording;
  recording.write_converted(out, record_node(recording, op, result, args, std::move(attrs)));
}

} // namespace torch_xla
