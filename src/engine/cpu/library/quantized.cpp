// Few rows read the weight as it is.
#include "engine/cpu/library/quantized.h"

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

Work work_of_weights(const CallSpec& call) {
  const int64_t numbers = call.operands[0].type.dims[1] * call.results[0].type.dims[1];
  return has_few_rows_of(call) ? numbers / kNumbersPerThread : call.operands[0].type.dims[0] * numbers / kProductsPerThread;
}

} // namespace torch_xla::cpu
