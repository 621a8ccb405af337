// Numbers, ranges and conversions, by ATen's functions of the same purpose; histograms.
#include "engine/cpu/library/own_rows.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>

#include <unordered_map>

#include "engine/cpu/library/args.h"
#include "engine/cpu/library/histogram.h"
#include "ops/registry.h"

namespace torch_xla::cpu {
namespace {

using Values = std::vector<c10::IValue>;

at::Tensor full(const Attrs& attrs, const Values& operands) {
  const auto dtype = scalar_type(static_cast<DType>(std::get<int64_t>(attrs[0])));
  const c10::IValue& value = operands[0];
  if (value.isTensor()) {
    return value.toTensor().to(dtype).expand(ref(std::get<Dims>(attrs[1]))).contiguous();
  }
  return at::full(ref(std::get<Dims>(attrs[1])), value.toScalar(), dtype);
}

at::Tensor zeros(const Attrs& attrs, const Values& /*operands*/) {
  return full(attrs, {c10::IValue(0)});
}

at::Tensor convert(const Attrs& attrs, const Values& operands) {
  return tensor_of(operands[0]).to(scalar_type(static_cast<DType>(std::get<int64_t>(attrs[0]))));
}

at::Tensor arange(const Attrs& attrs, const Values& operands) {
  const auto dtype = scalar_type(static_cast<DType>(std::get<int64_t>(attrs[0])));
  const bool floats = c10::isFloatingType(dtype);
  at::Tensor numbers = at::arange(std::get<int64_t>(attrs[1]), floats ? c10::ScalarType::Double : c10::ScalarType::Long);
  auto number = [&](const c10::IValue& v) { return floats ? at::Scalar(v.toScalar().toDouble()) : at::Scalar(v.toScalar().toLong()); };
  return numbers.mul_(number(operands[1])).add_(number(operands[0])).to(dtype);
}

at::Tensor eye(const Attrs& attrs, const Values& /*operands*/) {
  return at::eye(std::get<int64_t>(attrs[1]), std::get<int64_t>(attrs[2]), scalar_type(static_cast<DType>(std::get<int64_t>(attrs[0]))));
}

} // namespace

// The only attribute of a conversion is the type.
OwnKernel find_own_kernel(const Op& row) {
  static const auto* kernels = new std::unordered_map<const Op*, OwnKernel>{
      {&get_op("xla::full"), full},
      {&get_op("xla::zeros"), zeros},
      {&get_op("xla::arange"), arange},
      {&get_op("xla::eye"), eye},
      {&get_op("xla::convert"), convert},
      {&get_op("aten::_to_copy"), convert},
      {&get_op("aten::histc"), histogram},
  };
  auto found = kernels->find(&row);
  return found == kernels->end() ? nullptr : found->second;
}

} // namespace torch_xla::cpu
