// ATen operations composed of recorded ones. They have no rows. Their out= forms: out_forms.cpp.
#include <ATen/ScalarOps.h>
#include <ATen/ops/_add_relu.h>
#include <ATen/ops/_embedding_bag_dense_backward.h>
#include <ATen/ops/_embedding_bag_sparse_backward.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/cummin.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/tensordot.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/library.h>

#include "engine/engine.h"
#include "kernels/register.h"
#include "recording/copy.h"
#include "trace/device_number.h"

namespace torch_xla {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using SymInts = c10::SymIntArrayRef;

Tensor add_relu(const Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  return at::_add_relu(self, at::native::wrapped_scalar_tensor(other), alpha);
}

Tensor& add_relu_(Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  return self.copy_(add_relu(self, other, alpha));
}

std::tuple<Tensor, Tensor> aminmax(const Tensor& self) {
  return at::aminmax(self);
}

std::tuple<Tensor, Tensor> aminmax_dim(const Tensor& self, int64_t dim, bool keepdim) {
  return at::aminmax(self, dim, keepdim);
}

bool equal(const Tensor& self, const Tensor& other) {
  return self.sizes() == other.sizes() && at::eq(self, other).all().item<bool>();
}

Tensor dequantize(const Tensor& self) {
  return self.to(at::kFloat);
}

Tensor combine_linearly(const Tensor& input, const Tensor& coefficients) {
  return at::tensordot(coefficients, input, {1}, {0});
}

// ATen adds to the tensor's content.
Tensor& combine_linearly_out(const Tensor& input, const Tensor& coefficients, Tensor& out) {
  return out.add_(combine_linearly(input, coefficients));
}

template <auto Scan>
void scan_into(const Tensor& self, Tensor& values, Tensor& indices, int64_t dim) {
  auto [largest, places] = Scan(self, dim);
  values.copy_(largest);
  indices.copy_(places);
}

// Zeros that ATen's kernels for the key ZeroTensor know without reading: zero times infinity is zero.
Tensor efficient_zeros(
    SymInts size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  Tensor zeros = at::zeros_symint(size, dtype, layout, device, pin_memory);
  c10::DispatchKeySet keys = zeros.key_set() | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(zeros.storage()), keys, zeros.dtype());
  impl->set_sizes_and_strides(zeros.sizes(), zeros.strides());
  return Tensor(std::move(impl));
}

// The number of bins is data and must be read. If the host reads the device's memory, ATen counts there at once.
Tensor bincount(const Tensor& self, const OptionalTensor& weights, c10::SymInt minlength) {
  if (engine().runs_library_calls()) {
    OptionalTensor read_weights = weights && weights->defined() ? std::optional(read_on_cpu(*weights)) : std::nullopt;
    return upload_adopted(device_number(self), at::bincount_symint(read_on_cpu(self), read_weights, std::move(minlength)));
  }
  bool integral = c10::isIntegralType(self.scalar_type(), /*includeBool=*/false);
  TORCH_CHECK_NOT_IMPLEMENTED(integral, "\"bincount\" not implemented for '", c10::toString(self.scalar_type()), "'");
  TORCH_CHECK(minlength.expect_int() >= 0, "minlength should be >= 0");
  bool fits = self.dim() == 1;
  int64_t length = minlength.expect_int();
  if (fits && self.numel() > 0) {
    auto [least, most] = at::aminmax(self);
    fits = least.item<int64_t>() >= 0;
    length = std::max(length, most.item<int64_t>() + 1);
  }
  TORCH_CHECK(fits || (self.dim() == 1 && self.numel() == 0), "bincount only supports 1-d non-negative integral inputs.");
  bool weighted = weights && weights->defined();
  TORCH_CHECK(
      !weighted || (weights->dim() == 1 && weights->size(0) == self.size(0)), "weights should be 1-d and have the same length as input");
  at::TensorOptions options = self.options().dtype(at::kLong);
  const Tensor bins = self.to(at::kLong);
  if (!weighted) {
    return at::zeros({length}, options).index_add_(0, bins, at::ones_like(bins));
  }
  c10::ScalarType type = weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  return at::zeros({length}, options.dtype(type)).index_add_(0, bins, weights->to(type));
}

using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

ThreeTensors batch_norm_legit(
    const Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    Tensor& running_mean,
    Tensor& running_var,
    bool training,
    double momentum,
    double eps) {
  return at::native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

ThreeTensors batch_norm_without_statistics(
    const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias, bool training, double momentum, double eps) {
  return at::native_batch_norm(input, weight, bias, {}, {}, training, momentum, eps);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_with_update(
    const Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    Tensor& running_mean,
    Tensor& running_var,
    double momentum,
    double eps) {
  auto [out, mean, invstd] = at::native_batch_norm(input, weight, bias, running_mean, running_var, /*training=*/true, momentum, eps);
  return {out, mean, invstd, at::empty({0}, input.options().dtype(at::kByte))};
}

ThreeTensors batch_norm_backward(
    const Tensor& grad,
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    const OptionalTensor& mean,
    const OptionalTensor& invstd,
    bool update,
    double eps,
    std::array<bool, 3> mask,
    const Tensor& /*reserve*/) {
  return at::native_batch_norm_backward(grad, input, weight, running_mean, running_var, mean, invstd, update, eps, mask);
}

// A forward pass that summed directly leaves no bags of the indices.
Tensor bags_of(const Tensor& indices, const Tensor& offsets) {
  Tensor starts = at::zeros({indices.size(0) + 1}, offsets.options());
  starts.index_add_(0, offsets, at::ones_like(offsets));
  return starts.cumsum(0, starts.scalar_type()).sub_(1).narrow(0, 0, indices.size(0));
}

Tensor embedding_bag_backward(
    const Tensor& grad,
    const Tensor& some_indices,
    const Tensor& some_offsets,
    const Tensor& bags,
    const Tensor& bag_size,
    const Tensor& maximum_indices,
    c10::SymInt num_weights,
    bool scale_grad_by_freq,
    int64_t mode,
    bool sparse,
    const OptionalTensor& per_sample_weights,
    int64_t padding_idx) {
  c10::ScalarType type = c10::promoteTypes(some_indices.scalar_type(), some_offsets.scalar_type());
  Tensor indices = some_indices.to(type);
  Tensor offsets = some_offsets.to(type);
  Tensor known = indices.numel() != 0 && bags.numel() == 0 ? bags_of(indices, offsets) : bags;
  if (sparse) {
    return at::_embedding_bag_sparse_backward_symint(
        grad, indices, offsets, known, bag_size, num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx);
  }
  return at::_embedding_bag_dense_backward_symint(
      grad, indices, known, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx);
}

// For each element of the source the gradient at its destination. ATen counts the destinations and waits for the mask.
Tensor masked_scatter_backward(const Tensor& grad, const Tensor& mask, SymInts sizes) {
  const c10::IntArrayRef shape = C10_AS_INTARRAYREF_SLOW(sizes);
  const int64_t count = c10::multiply_integers(shape);
  const Tensor taken = mask.to(at::kBool).expand_as(grad).reshape(-1);
  const Tensor element = at::where(taken, taken.cumsum(0).sub(1).clamp_max(count), count); // `count`: no element
  return at::zeros({count + 1}, grad.options()).scatter_(0, element, grad.reshape(-1)).narrow(0, 0, count).view(shape);
}

// Choose no fused kernel: the device's own attention comes earlier (attention.cpp).
int64_t choose_attention(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&, double, bool, std::optional<double>, bool) {
  return 0; // sdp::SDPBackend::math
}

// [batch, length, 3 * heads * size] to three of [batch, heads, length, size], the queries scaled.
ThreeTensors split_heads(const Tensor& qkv, const Tensor& bias, int64_t heads) {
  int64_t size = qkv.size(2) / 3 / heads;
  Tensor split = qkv.add(bias).view({qkv.size(0), qkv.size(1), 3, heads, size}).permute({2, 0, 3, 1, 4});
  return {split[0].contiguous().div(std::sqrt(static_cast<double>(size))), split[1].contiguous(), split[2].contiguous()};
}

at::SmallVector<c10::SymInt, 3> repeated(size_t n, int64_t value) {
  return at::SmallVector<c10::SymInt, 3>(n, c10::SymInt(value));
}

Tensor convolve(const Tensor& self, const Tensor& weight, SymInts kernel, const OptionalTensor& bias, SymInts stride, SymInts padding) {
  return at::convolution_symint(
      self, weight, bias, stride, padding, repeated(kernel.size(), 1), /*transposed=*/false, repeated(kernel.size(), 0), /*groups=*/1);
}

Tensor convolve_dilated(
    const Tensor& self,
    const Tensor& weight,
    SymInts kernel,
    const OptionalTensor& bias,
    SymInts stride,
    SymInts padding,
    SymInts dilation) {
  return at::convolution_symint(self, weight, bias, stride, padding, dilation, /*transposed=*/false, repeated(kernel.size(), 0), 1);
}

Tensor convolve_transposed(
    const Tensor& self,
    const Tensor& weight,
    SymInts /*kernel*/,
    const OptionalTensor& bias,
    SymInts stride,
    SymInts padding,
    SymInts output_padding,
    SymInts dilation) {
  return at::convolution_symint(self, weight, bias, stride, padding, dilation, /*transposed=*/true, output_padding, /*groups=*/1);
}

ThreeTensors convolve_backward(
    const Tensor& grad,
    const Tensor& self,
    const Tensor& weight,
    SymInts kernel,
    SymInts stride,
    SymInts padding,
    std::array<bool, 3> mask) {
  c10::SymInt channels = weight.sym_size(0);
  return at::convolution_backward_symint(
      grad, self, weight, SymInts(&channels, 1), stride, padding, repeated(kernel.size(), 1), false, repeated(kernel.size(), 0), 1, mask);
}

// Slopes of negative elements: drawn in training and kept in `noise`.
Tensor rrelu_with_noise(
    const Tensor& self,
    Tensor& noise,
    const at::Scalar& lower,
    const at::Scalar& upper,
    bool training,
    std::optional<at::Generator> generator) {
  if (!training) {
    return at::leaky_relu(self, (lower.toDouble() + upper.toDouble()) / 2);
  }
  TORCH_CHECK(
      self.sym_sizes() == noise.sym_sizes(),
      "noise tensor shape must match self tensor shape. Got self.shape = ",
      self.sym_sizes(),
      " noise.shape = ",
      noise.sym_sizes());
  Tensor slopes = at::empty_like(self).uniform_(lower.toDouble(), upper.toDouble(), std::move(generator));
  noise.copy_(at::where(self.le(0), slopes, at::ones_like(self)));
  return self.mul(noise);
}

Tensor& rrelu_with_noise_(
    Tensor& self, Tensor& noise, const at::Scalar& lower, const at::Scalar& upper, bool training, std::optional<at::Generator> generator) {
  return self.copy_(rrelu_with_noise(self, noise, lower, upper, training, std::move(generator)));
}

} // namespace

void register_composed(torch::Library& m) {
  m.impl("_add_relu.Scalar", TORCH_FN(add_relu));
  m.impl("_add_relu_.Scalar", TORCH_FN(add_relu_));
  m.impl("_aminmax", TORCH_FN(aminmax));
  m.impl("_aminmax.dim", TORCH_FN(aminmax_dim));
  m.impl("_batch_norm_with_update", TORCH_FN(batch_norm_with_update));
  m.impl("_compute_linear_combination", TORCH_FN(combine_linearly));
  m.impl("_compute_linear_combination.out", TORCH_FN(combine_linearly_out));
  m.impl("_cummax_helper", TORCH_FN((scan_into<static_cast<std::tuple<Tensor, Tensor> (*)(const Tensor&, int64_t)>(&at::cummax)>)));
  m.impl("_cummin_helper", TORCH_FN((scan_into<static_cast<std::tuple<Tensor, Tensor> (*)(const Tensor&, int64_t)>(&at::cummin)>)));
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zeros));
  m.impl("_embedding_bag_backward", TORCH_FN(embedding_bag_backward));
  m.impl("_fused_sdp_choice", TORCH_FN(choose_attention));
  m.impl("_native_batch_norm_legit", TORCH_FN(batch_norm_legit));
  m.impl("_native_batch_norm_legit.no_stats", TORCH_FN(batch_norm_without_statistics));
  m.impl("_slow_conv2d_backward.output_mask", TORCH_FN(convolve_backward));
  m.impl("_slow_conv2d_forward", TORCH_FN(convolve));
  m.impl("_transform_bias_rescale_qkv", TORCH_FN(split_heads));
  m.impl("batch_norm_backward", TORCH_FN(batch_norm_backward));
  m.impl("bincount", TORCH_FN(bincount));
  m.impl("dequantize.self", TORCH_FN(dequantize));
  m.impl("equal", TORCH_FN(equal));
  m.impl("masked_scatter_backward", TORCH_FN(masked_scatter_backward));
  m.impl("rrelu_with_noise", TORCH_FN(rrelu_with_noise));
  m.impl("rrelu_with_noise_", TORCH_FN(rrelu_with_noise_));
  m.impl("slow_conv3d_forward", TORCH_FN(convolve));
  m.impl("slow_conv_dilated2d", TORCH_FN(convolve_dilated));
  m.impl("slow_conv_dilated3d", TORCH_FN(convolve_dilated));
  m.impl("slow_conv_transpose3d", TORCH_FN(convolve_transposed));
}

} // namespace torch_xla
