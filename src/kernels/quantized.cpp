// Linear layers of torch.ao.quantization.quantize_dynamic: PyTorch packs their weights for the CPU;
// the device has a copy of each, made once. Inputs are rounded to 8 bits, and multiplied by _int_mm.
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/quantized/PackedParams.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/int_repr.h>
#include <ATen/ops/q_per_channel_scales.h>
#include <ATen/ops/q_per_channel_zero_points.h>
#include <ATen/ops/round.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <map>
#include <mutex>

#include "core/errors.h"
#include "kernels/register.h"

namespace torch_xla {
namespace {

using at::Tensor;
using Packed = c10::intrusive_ptr<LinearPackedParamsBase>;

// A weight [N, K] on the device.
struct Weight {
  Tensor numbers; // [K, N], int8
  Tensor sums; // [N], int32: of the numbers of each column
  Tensor scales, zeros; // [N], or of one number
  bool has_zeros; // other than 0
  Tensor bias; // [N], or undefined

  Weight(LinearPackedParamsBase& packed, c10::Device device) {
    const auto [weight, added] = packed.unpack();
    const bool per_channel = weight.qscheme() == at::kPerChannelAffine;
    const Tensor cpu_zeros = per_channel ? at::q_per_channel_zero_points(weight) : at::full({1}, weight.q_zero_point(), at::kInt);
    const Tensor cpu_scales = per_channel ? at::q_per_channel_scales(weight) : at::full({1}, weight.q_scale(), at::kDouble);
    const Tensor integers = at::int_repr(weight);
    numbers = integers.to(device).t();
    sums = integers.sum(1, /*keepdim=*/false, at::kInt).to(device);
    scales = cpu_scales.to(at::kFloat).to(device);
    zeros = cpu_zeros.to(at::kInt).to(device);
    has_zeros = cpu_zeros.ne(0).any().item<bool>();
    bias = added && added->defined() ? added->to(device) : Tensor();
  }
};

// The device's copy, kept while the packed weight lives.
std::shared_ptr<const Weight> find_weight(const Packed& packed, c10::Device device) {
  struct Copy {
    c10::weak_intrusive_ptr<LinearPackedParamsBase> packed;
    std::shared_ptr<const Weight> weight;
  };
  static auto* mutex = new std::mutex; // never destroyed, as the copies are tensors of the device
  static auto* copies = new std::map<std::pair<const void*, int>, Copy>;
  std::lock_guard<std::mutex> lock(*mutex);
  const auto key = std::pair<const void*, int>(packed.get(), device.index());
  auto found = copies->find(key);
  if (found != copies->end() && !found->second.packed.expired()) {
    return found->second.weight;
  }
  std::erase_if(*copies, [](const auto& copy) { return copy.second.packed.expired(); });
  auto weight = std::make_shared<const Weight>(*packed, device);
  copies->insert_or_assign(key, Copy{c10::weak_intrusive_ptr<LinearPackedParamsBase>(packed), weight});
  return weight;
}

// Numbers of an input as integers from 0 to `most`: number = scale * (integer - zero). As ATen's kernels choose them.
struct Rounded {
  Tensor integers; // uint8
  Tensor scale; // float32 []
  Tensor zero; // int32 []

  Rounded(const Tensor& x, double most) {
    constexpr double kSmallest = 6.1e-5;
    constexpr double kOfZeros = 0.1;
    const Tensor low = x.amin().clamp_max(0).to(at::kDouble);
    const Tensor high = x.amax().clamp_min(0).to(at::kDouble);
    const Tensor exact = (high - low) / most;
    const Tensor step = at::where(exact.to(at::kFloat).reciprocal().isinf(), kOfZeros, exact);
    const Tensor nearest_zero = at::round(-low / step).clamp(0, most);
    scale = step.clamp_min(kSmallest).to(at::kFloat);
    zero = nearest_zero.to(at::kInt);
    integers = (at::round(x * scale.reciprocal()) + nearest_zero.to(at::kFloat)).clamp(0, most).to(at::kByte);
  }
};

template <bool kRelu>
Tensor linear_dynamic(Tensor input, const Packed& packed, bool reduce_range) {
  const at::AutoDispatchBelowADInplaceOrView no_grad;
  XLA_CHECK(input.scalar_type() == at::kFloat, "linear_dynamic expected an input of float32, but got ", c10::toString(input.scalar_type()));
  XLA_CHECK(input.dim() >= 2, "linear_dynamic expected an input of two dims at least, but got ", input.dim());
  const std::shared_ptr<const Weight> weight = find_weight(packed, input.device());
  const int64_t inner = weight->numbers.size(0);
  XLA_CHECK(input.size(-1) == inner, "linear_dynamic expected an input of ", inner, " features, but got ", input.size(-1));
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes.back() = weight->numbers.size(1);
  if (input.numel() == 0) {
    return at::empty(sizes, input.options());
  }
  const Tensor x = input.reshape({-1, inner});
  const Rounded rounded(x, reduce_range ? 127 : 255);
  Tensor sums = at::_int_mm(rounded.integers, weight->numbers) - rounded.zero * weight->sums;
  if (weight->has_zeros) {
    const Tensor row_sums = rounded.integers.sum(1, /*keepdim=*/true, at::kInt) - rounded.zero * inner;
    sums = sums - row_sums * weight->zeros;
  }
  Tensor result = sums.to(at::kFloat) * (rounded.scale * weight->scales);
  result = weight->bias.defined() ? result + weight->bias : result;
  return (kRelu ? result.relu() : result).view(sizes);
}

} // namespace

void register_quantized_layers() {
  static auto* library = new torch::Library(torch::Library::IMPL, "quantized", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library->impl("linear_dynamic", TORCH_FN(linear_dynamic<false>));
  library->impl("linear_relu_dynamic", TORCH_FN(linear_dynamic<true>));
}

} // namespace torch_xla
