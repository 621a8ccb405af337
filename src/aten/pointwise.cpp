// Result types and the three calling conventions of pointwise rows.
#include "aten/pointwise.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>

#include "aten/native_call.h"
#include "aten/promotion.h"
#include "aten/result_strides.h"
#include "core/errors.h"
#include "ops/registry.h"
#include "recording/recording.h"

namespace torch_xla {
namespace {

using c10::ScalarType;

struct PointwiseResult {
  Type type;
  Dims strides; // see result_strides.h
};

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

void check_writable(const at::Tensor& out, std::span<const PointwiseArg> args) {
  at::assert_no_internal_overlap(out);
  check_apart(out, args);
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

// The trace does not know the program's default dtype, the type of a floating number beside integers.
void lift_compared(Recording& recording, std::span<const PointwiseArg> args, InlineVec<ValueId, 4>& operands) {
  auto is = [&](bool (*kind)(DType)) { return [&recording, kind](ValueId v) { return kind(recording.type(v).dtype); }; };
  auto integral = [](DType t) { return is_integral(t, true); };
  if (std::any_of(operands.begin(), operands.end(), is(integral)) && std::any_of(operands.begin(), operands.end(), is(is_float))) {
    DType type = promoted_type(args);
    for (ValueId& v : operands) {
      v = recording.convert(v, type);
    }
  }
}

ValueId record_node(Recording& recording, const Op& op, const PointwiseResult& result, std::span<const PointwiseArg> args, Attrs attrs) {
  InlineVec<ValueId, 4> operands;
  if (has_unit_alpha(op, args)) {
    args = args.first(args.size() - 1);
  }
  for (const PointwiseArg& arg : args) {
    if (arg.scalar) {
      operands.push_back(recording.scalar(*arg.scalar));
    } else {
      operands.push_back(arg.tensor && arg.tensor->defined() ? recording.read_operand(*arg.tensor) : kNoValue);
    }
  }
  if (op.rule == TypeRule::kCompare) {
    lift_compared(recording, args, operands);
  }
  if (divides_by_data(op, args, result.type.dtype)) {
    for (ValueId& v : operands) {
      v = recording.convert(v, result.type.dtype);
    }
    return recording.node(library_form(op.of_tensors ? get_op(op.of_tensors) : op), std::move(operands), std::move(attrs), result.type);
  }
  return recording.node(op, std::move(operands), std::move(attrs), result.type);
}

// At least one tensor is on an XLA device, else the call would not come here.
int device_of_call(std::span<const PointwiseArg> args) {
  for (const PointwiseArg& arg : args) {
    if (arg.tensor && is_xla_tensor(*arg.tensor)) {
      return device_number(*arg.tensor);
    }
  }
  XLA_ASSERT(false, "a pointwise call without a tensor of the device");
}

// The common case: tensors with one type and one contiguous shape, and a rule that keeps the type.
bool infer_uniform(const Op& op, std::span<const PointwiseArg> args, PointwiseResult& result) {
  const at::Tensor* first = args[0].tensor;
  if (!first || first->dim() == 0 || !first->is_contiguous() || (op.rule != TypeRule::kPromote && op.rule != TypeRule::kSelf)) {
    return false;
  }
  int tensors = 0;
  for (const PointwiseArg& arg : args) {
    bool same = arg.tensor && arg.tensor->defined() && arg.tensor->scalar_type() == first->scalar_type() &&
        same_dims(arg.tensor->sizes(), first->sizes()) && arg.tensor->is_contiguous();
    if (!same && !arg.scalar) {
      return false;
    }
    tensors += same;
  }
  // A number beside a single tensor may lift the result's type.
  if (tensors < 2 && args.size() > 1 && op.rule == TypeRule::kPromote) {
    return false;
  }
  result.type.dtype = to_dtype(first->scalar_type());
  result.type.dims = to_dims(first->sizes());
  return true;
}

// Whether the call's number is an operand like its tensor, not a parameter: one of two operands, or a choice of where().
bool wraps_numbers(const Op& op, std::span<const PointwiseArg> args) {
  const bool has_alpha = op.traits & kUnitAlpha;
  return op.rule == TypeRule::kTail ||
      (op.rule != TypeRule::kSelf && !(op.traits & kNumbersFit) && args.size() == (has_alpha ? 3 : 2) &&
       (args[0].scalar || args[1].scalar));
}

// Result type by the row's rule, broadcast dims, and eager's strides.
PointwiseResult infer_pointwise(const Op& op, std::span<const PointwiseArg> args) {
  PointwiseResult result;
  if (infer_uniform(op, args, result)) {
    return result;
  }
  result.type.dims = broadcast_dims(args);
  result.type.dtype = result_dtype(op, args);
  if (op.layout != ResultLayout::kRowMajor) {
    const Operands operands{common_dtype(op, args), op.rule == TypeRule::kTail ? size_t{1} : 0, wraps_numbers(op, args)};
    result.strides = iterator_strides(result.type.dims, args, operands);
  }
  return result;
}

} // namespace

void check_apart(const at::Tensor& out, std::span<const PointwiseArg> args) {
  for (const PointwiseArg& arg : args) {
    if (arg.tensor && arg.tensor->defined() && !arg.tensor->is_same(out) && arg.tensor->device() == out.device()) {
      at::assert_no_partial_overlap(out, *arg.tensor);
    }
  }
}

at::Tensor record_functional(const Op& op, std::span<const PointwiseArg> args, Attrs attrs) {
  PointwiseResult result = infer_pointwise(op, args);
  Recording recording(device_of_call(args));
  return recording.wrap(record_node(recording, op, result, args, std::move(attrs)), result.strides);
}

void record_inplace(const Op& op, const at::Tensor& self, std::span<const PointwiseArg> args, Attrs attrs) {
  PointwiseResult result = infer_pointwise(op, args);
  check_dims(result, self);
  check_cast(result, self);
  check_writable(self, op.traits & kFills ? args.first(2) : args); // for ATen masked_fill_'s value is a number
  Recording recording(device_of_call(args));
  recording.write_converted(self, record_node(recording, op, result, args, std::move(attrs)));
}

void resize_out(const at::Tensor& out, const Dims& dims, const Dims& strides) {
  at::AutoDispatchBelowADInplaceOrView below; // the caller has reported the write to out
  if (at::native::resize_output(out, to_ref(dims)) && !strides.empty()) {
    out.unsafeGetTensorImpl()->set_sizes_and_strides(to_ref(dims), to_ref(strides));
  }
}

void record_out(const Op& op, const at::Tensor& out, std::span<const PointwiseArg> args, Attrs attrs) {
  PointwiseResult result = infer_pointwise(op, args);
  TORCH_CHECK(is_xla_tensor(out), "Expected out tensor to be on the xla device, but got ", out.device());
  check_writable(out, args); // before the resize: a refused call leaves out unchanged
  check_cast(result, out);
  bool reads_out = std::any_of(args.begin(), args.end(), [&](const PointwiseArg& arg) { return arg.tensor && arg.tensor->is_same(out); });
  if (reads_out) {
    check_dims(result, out);
  }
  resize_out(out, result.type.dims, result.strides);
  Recording recording(device_number(out));
  recording.write_converted(out, record_node(recording, op, result, args, std::move(attrs)));
}

} // namespace torch_xla
