// Few rows of products read the weight as it is.
#include "engine/cpu/library/quantized.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "engine/cpu/cost.h"
#include "engine/cpu/few_rows/few_rows.h"
#include "engine/cpu/few_rows/int4_rows.h"
#include "engine/cpu/few_rows/many_rows.h"

namespace torch_xla::cpu {
namespace {

bool has_one_type(const CallSpec& call) {
  const DType dtype = call.operands[0].type.dtype;
  return (dtype == DType::F32 || is_reduced_float(dtype)) && call.operands[2].type.dtype == dtype && call.results[0].type.dtype == dtype;
}

bool has_few_rows_of(const CallSpec& call) {
  return call.operands[0].type.dims[0] <= kMaxFewRows;
}

// Numbers of a's rows must be even.
bool has_panels(const CallSpec& call) {
  const Type& a = call.operands[0].type;
  return can_multiply_panels() && a.dtype == DType::BF16 && a.dims[1] % 2 == 0;
}

} // namespace

bool is_int8_product(const CallSpec& call) {
  const bool fits = has_few_rows_of(call) ? can_multiply_rows() : has_panels(call);
  return fits && has_one_type(call) && call.operands[1].type.dtype == DType::I8;
}

void multiply_int8(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  const at::Tensor& weight = operands[1];
  const RowProduct product{
      .dtype = static_cast<DType>(outs[0].scalar_type()),
      .rows = operands[0].size(0),
      .inner = weight.size(1),
      .columns = weight.size(0),
      .a = operands[0].const_data_ptr(),
      .b = weight.const_data_ptr(),
      .b_dtype = DType::I8,
      .b_stride = weight.size(1),
      .b_is_transposed = true,
      .out = outs[0].data_ptr(),
      .scales = operands[2].const_data_ptr()};
  product.rows <= kMaxFewRows ? multiply_rows(product) : multiply_panels(product);
}

bool is_int4_product(const CallSpec& call) {
  const Dims& scales = call.operands[2].type.dims;
  const bool has_whole_panels = has_panels(call) && int4_block() == kPanelColumns && call.results[0].type.dims[1] % kPanelColumns == 0;
  return (has_few_rows_of(call) ? int4_block() > 0 : has_whole_panels) && has_one_type(call) && call.operands[1].type.dtype == DType::U8 &&
      scales[0] * std::get<int64_t>(call.attrs[0]) == call.operands[0].type.dims[1];
}

void multiply_int4(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  const int64_t inner = operands[0].size(1);
  const Int4Product product{
      .dtype = static_cast<DType>(outs[0].scalar_type()),
      .rows = operands[0].size(0),
      .inner = inner,
      .columns = outs[0].size(1),
      .group = inner / operands[2].size(0),
      .a = operands[0].const_data_ptr(),
      .q = operands[1].const_data_ptr<uint8_t>(),
      .scales_and_zeros = operands[2].const_data_ptr(),
      .out = outs[0].data_ptr()};
  product.rows <= kMaxFewRows ? multiply_int4_rows(product) : multiply_panels(product);
}

bool reads_integers(DType dtype, int64_t rows, int64_t inner) {
  const bool are_few = rows <= kMaxFewRows && can_multiply_rows() && (dtype == DType::F32 || is_reduced_float(dtype));
  return dtype == DType::I32 || are_few || (dtype == DType::BF16 && can_multiply_panels() && inner % 2 == 0);
}

Work work_of_weights(const CallSpec& call) {
  const int64_t numbers = call.operands[0].type.dims[1] * call.results[0].type.dims[1];
  return has_few_rows_of(call) ? numbers / kNumbersPerThread : call.operands[0].type.dims[0] * numbers / kProductsPerThread;
}

// ---- Convolutions, by oneDNN, with the operators of torch.compile's quantized graphs ----

namespace {

at::Tensor call(const c10::OperatorHandle& op, torch::jit::Stack arguments) {
  op.callBoxed(arguments);
  return arguments[0].toTensor();
}

c10::OperatorHandle find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

// Positions of the arguments of xla::quantized_convolution.
enum { kInput, kWeight, kBias, kScale, kZero, kWeightScales, kWeightZeros, kStride, kPadding, kDilation, kGroups = 12 };

Packed pack(const torch::jit::Stack& a) {
  const at::Tensor& weight = a[kWeight].toTensor();
  const at::Tensor scales = at::ones({weight.size(0)}); // the packed order does not depend on them
  static const c10::OperatorHandle prepack = find("onednn::qconv_prepack");
  at::Tensor packed = call(
      prepack, {weight, scales, 1.0, int64_t{0}, a[kStride], a[kPadding], a[kDilation], a[kGroups], a[kInput].toTensor().sizes().vec()});
  return {packed, std::nullopt};
}

// Whether a zero of the weight is not 0: oneDNN has none.
bool has_weight_zeros(const torch::jit::Stack& a) {
  if (!a[kWeightZeros].isTensor()) {
    return false;
  }
  const at::Tensor zeros = a[kWeightZeros].toTensor().contiguous();
  const int64_t* begin = zeros.const_data_ptr<int64_t>();
  return std::any_of(begin, begin + zeros.numel(), [](int64_t zero) { return zero != 0; });
}

at::Tensor convolve_floats(const torch::jit::Stack& a) {
  auto per_channel = [&](size_t i) { return a[i].toTensor().view({-1, 1, 1, 1}); };
  const at::Tensor zero = a[kZero].isTensor() ? a[kZero].toTensor() : at::zeros({});
  const at::Tensor input = (a[kInput].toTensor().to(at::kFloat) - zero) * a[kScale].toTensor().to(at::kFloat);
  const at::Tensor weight = (a[kWeight].toTensor().to(at::kFloat) - per_channel(kWeightZeros)) * per_channel(kWeightScales);
  const std::vector<int64_t> stride = a[kStride].toIntVector(), padding = a[kPadding].toIntVector(), dilation = a[kDilation].toIntVector();
  return at::convolution(
      input, weight, a[kBias].toOptional<at::Tensor>(), stride, padding, dilation, /*transposed=*/false, {0, 0}, a[kGroups].toInt());
}

at::Tensor convolve(const torch::jit::Stack& a, const Packed& packed, bool /*only*/) {
  if (has_weight_zeros(a)) {
    return convolve_floats(a);
  }
  static const c10::OperatorHandle convolution = find("onednn::qconv_pointwise");
  const at::Tensor& scales = a[kWeightScales].toTensor();
  return call(
      convolution,
      {a[kInput],
       static_cast<double>(a[kScale].toTensor().item<float>()),
       a[kZero].isTensor() ? a[kZero].toTensor().item<int64_t>() : 0,
       packed.weight,
       scales,
       a[kWeightZeros].isTensor() ? a[kWeightZeros] : at::zeros({scales.size(0)}, at::kLong),
       a[kBias],
       a[kStride],
       a[kPadding],
       a[kDilation],
       a[kGroups],
       1.0, // scale of the result
       int64_t{0},
       at::kFloat,
       std::string("none"),
       c10::List<std::optional<at::Scalar>>(),
       std::string()});
}

OperandRange weight_operand(size_t /*num_operands*/) {
  return {kWeight, kWeight + 1};
}

bool fits(const CallSpec& call, const torch::jit::Stack& /*arguments*/) {
  return call.operands[kWeight].type.nbytes() >= kLeastKeptBytes && call.operands[kInput].type.numel() > 0;
}

} // namespace

bool convolves_integers() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vnni") != 0;
#else
  return false;
#endif
}

void convolve_integers(const c10::OperatorHandle& /*op*/, torch::jit::Stack* stack) {
  *stack = {convolve(*stack, pack(*stack), true)};
}

const Packing kPackedIntegers{weight_operand, fits, pack, nullptr, nullptr, convolve, key_of_convolution};

} // namespace torch_xla::cpu
