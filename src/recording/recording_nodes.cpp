// Nodes that a recording appends: numbers, conversions, broadcasts, constants.
#include <bit>

#include "core/metrics.h"
#include "core/observer.h"
#include "ops/registry.h"
#include "recording/recording.h"

namespace torch_xla {
namespace {

// As item(), without a dispatch for the two types of Python's numbers.
at::Scalar read_number(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case c10::ScalarType::Double:
      return *static_cast<const double*>(t.const_data_ptr());
    case c10::ScalarType::Long:
      return *static_cast<const int64_t*>(t.const_data_ptr());
    default:
      return t.item();
  }
}

} // namespace

ValueId Recording::read_operand(const at::Tensor& t) {
  if (t.device().type() == c10::DeviceType::CPU && t.dim() == 0) {
    ValueId number = scalar(read_number(t));
    bool wrapped = t.unsafeGetTensorImpl()->is_wrapped_number();
    return wrapped ? number : full(to_dtype(t.scalar_type()), {}, number);
  }
  return read(t);
}

ValueId Recording::scalar(const at::Scalar& value) {
  if (value.isBoolean()) {
    return trace_.add_scalar(DType::Bool, value.toBool());
  }
  return value.isIntegral(false) ? scalar_int(value.toLong()) : scalar_double(value.toDouble());
}

ValueId Recording::scalar_double(double value) {
  return trace_.add_scalar(DType::F64, std::bit_cast<uint64_t>(value));
}

ValueId Recording::scalar_int(int64_t value) {
  return trace_.add_scalar(DType::I64, static_cast<uint64_t>(value));
}

ValueId Recording::node(const Op& op, InlineVec<ValueId, 4> operands, Attrs attrs, std::span<const Type> results) {
  CutPlan& cut = trace_.cut();
  if (trace_.graph().nodes.size() + 1 >= cut.next_check || trace_.input_bytes() >= cut.next_input_check) {
    cut.wanted.store(true, std::memory_order_relaxed);
  }
  if (observer::is_on(observer::Phase::kRecord)) {
    int64_t now = metrics::now_ns();
    observer::report(
        {.phase = observer::Phase::kRecord,
         .name = op.name,
         .start_ns = now,
         .end_ns = now,
         .line = location_,
         .device = device_,
         .node = static_cast<int32_t>(trace_.graph().nodes.size())});
  }
  return trace_.add_node(op, std::move(operands), std::move(attrs), results, location_);
}

ValueId Recording::convert(ValueId v, DType dtype) {
  static const Op& op = get_op("xla::convert");
  if (type(v).dtype == dtype) {
    return v;
  }
  Type result{dtype, type(v).dims};
  bool computed = is_native(type(v).dtype) && is_native(dtype);
  static const Op& call = get_op("aten::_to_copy");
  return node(computed ? op : call, {v}, {static_cast<int64_t>(dtype)}, result);
}

ValueId Recording::conjugate(ValueId v) {
  static const Op& op = get_op("aten::_conj_physical");
  Type result = type(v);
  return node(op, {v}, {}, result);
}

ValueId Recording::negate(ValueId v) {
  static const Op& op = get_op("aten::neg");
  static const Op& call = library_form(op);
  Type result = type(v);
  return node(is_native(result.dtype) ? op : call, {v}, {}, result);
}

ValueId Recording::broadcast(ValueId v, const Dims& dims) {
  Dims from = type(v).dims;
  if (from == dims) {
    return v;
  }
  Dims base = contiguous_strides(from);
  Dims strides(dims.size(), 0);
  size_t lead = dims.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    strides[lead + i] = from[i] == 1 ? 0 : base[i];
  }
  return node(kViewOp, {v}, {base, strides, int64_t{0}}, Type{type(v).dtype, dims});
}

ValueId Recording::full(DType dtype, const Dims& dims, ValueId value) {
  static const Op& op = get_op("xla::full");
  return node(op, {value}, {static_cast<int64_t>(dtype), dims}, Type{dtype, dims});
}

ValueId Recording::zeros(DType dtype, const Dims& dims) {
  static const Op& op = get_op("xla::zeros");
  if (!is_native(dtype)) {
    return full(dtype, dims, scalar_int(0));
  }
  return node(op, {}, {static_cast<int64_t>(dtype), dims}, Type{dtype, dims});
}

} // namespace torch_xla
