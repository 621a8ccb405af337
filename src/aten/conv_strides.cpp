// The memory format of ATen's CPU kernel for a convolution.
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/from_blob.h>

#include "aten/result_strides.h"
#include "trace/cell.h"

namespace torch_xla {
namespace {

// A CPU tensor of the same type and strides without memory for elements: ATen's rules read no more.
at::Tensor stand_in(const at::Tensor& t) {
  return at::for_blob(nullptr, t.sizes())
      .strides(t.strides())
      .options(at::TensorOptions().dtype(t.scalar_type()).device(at::kCPU))
      .target_device(at::kCPU)
      .make_tensor();
}

} // namespace

bool is_channels_last_kernel(const Op& op, const BoxedCall& call, const Attrs& attrs) {
  auto first = static_cast<size_t>(op.order_of); // the number of attributes before the stride
  auto list = [&](size_t i) { return c10::fromIntArrayRefSlow(to_ref(std::get<Dims>(attrs[first + i]))); };
  at::Tensor input = stand_in(call.tensors[first]);
  at::Tensor weight = stand_in(call.tensors[first + 1]);
  at::native::ConvBackend backend = at::native::select_conv_backend(
      input,
      weight,
      std::nullopt,
      list(0),
      list(1),
      list(2),
      std::get<bool>(attrs[first + 3]),
      list(4),
      std::get<int64_t>(attrs[first + 5]),
      std::nullopt);
  return at::native::_determine_backend_memory_format(input, weight, backend) != at::MemoryFormat::Contiguous;
}

} // namespace torch_xla
