// The single steps of batch norm as recorded operations: torch.nn.SyncBatchNorm needs them, and ATen has them for CUDA alone. Statistics of
// 16-bit floats are float32.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/var_mean.h>
#include <torch/library.h>

#include "kernels/register.h"

namespace torch_xla {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Input [N, C, ...] in the type of its statistics.
Tensor widened(const Tensor& input) {
  return input.to(at::toOpMathType(input.scalar_type()));
}

// [C] beside an input [N, C, ...].
Tensor by_channel(const Tensor& values, const Tensor& input) {
  std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
  sizes[1] = -1;
  return values.view(sizes);
}

std::vector<int64_t> dims_but_channels(const Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < input.dim(); ++d) {
    if (d != 1) {
      dims.push_back(d);
    }
  }
  return dims;
}

Tensor sum_of_channels(const Tensor& x) {
  return x.sum(dims_but_channels(x));
}

Tensor scaled(const Tensor& invstd, const OptionalTensor& weight) {
  return weight && weight->defined() ? invstd * *weight : invstd;
}

std::tuple<Tensor, Tensor> batch_norm_stats(const Tensor& input, double eps) {
  auto [variance, mean] = at::var_mean(widened(input), dims_but_channels(input), /*correction=*/0, /*keepdim=*/false);
  return {mean, at::rsqrt(variance + eps)};
}

// `factor` multiplies the value, to remove its bias.
void average(const OptionalTensor& running, const Tensor& value, double momentum, double factor = 1) {
  if (running && running->defined()) {
    running->mul_(1 - momentum).add_(value, momentum * factor);
  }
}

// The mean and the biased variance of each channel; running statistics take the unbiased one.
std::tuple<Tensor, Tensor> batch_norm_update_stats(
    const Tensor& input, const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum) {
  const std::vector<int64_t> dims = dims_but_channels(input);
  auto [variance, mean] = at::var_mean(input, dims, /*correction=*/0, /*keepdim=*/false);
  int64_t count = 1;
  for (int64_t d : dims) {
    count *= input.size(d);
  }
  average(running_mean, mean, momentum);
  average(running_var, variance, momentum, static_cast<double>(count) / static_cast<double>(count - 1));
  return {mean, variance};
}

// Statistics [processes, C] of `counts` [processes] elements each.
std::tuple<Tensor, Tensor> batch_norm_gather_stats_with_counts(
    const Tensor&,
    const Tensor& mean,
    const Tensor& invstd,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    double momentum,
    double eps,
    const Tensor& counts) {
  const Tensor weights = counts.to(mean.scalar_type()).unsqueeze(1);
  const Tensor count = weights.sum();
  const Tensor all_mean = (mean * weights).sum(0) / count;
  const Tensor variance = invstd.pow(-2) - eps;
  const Tensor squares = ((variance + (mean - all_mean).square()) * weights).sum(0);
  average(running_mean, all_mean, momentum);
  average(running_var, squares / (count - 1), momentum);
  return {all_mean, at::rsqrt(squares / count + eps)};
}

std::tuple<Tensor, Tensor> batch_norm_gather_stats(
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    double momentum,
    double eps,
    int64_t count) {
  const Tensor counts = mean.new_full({mean.size(0)}, count);
  return batch_norm_gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

Tensor batch_norm_elemt(
    const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias, const Tensor& mean, const Tensor& invstd, double) {
  Tensor normal = (widened(input) - by_channel(mean, input)) * by_channel(scaled(invstd, weight), input);
  return (bias && bias->defined() ? normal + by_channel(*bias, input) : normal).to(input.scalar_type());
}

// Sums of the gradient, and of the gradient times the centered input; gradients of weight and bias.
std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_backward_reduce(
    const Tensor& grad_out,
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const OptionalTensor& weight,
    bool input_g,
    bool weight_g,
    bool bias_g) {
  const Tensor grad = widened(grad_out);
  const Tensor sum_dy = sum_of_channels(grad);
  const Tensor sum_dy_xmu = sum_of_channels(grad * (widened(input) - by_channel(mean, input)));
  const auto dtype = weight && weight->defined() ? weight->scalar_type() : mean.scalar_type();
  return {
      input_g ? sum_dy : Tensor(),
      input_g ? sum_dy_xmu : Tensor(),
      weight_g ? (sum_dy_xmu * invstd).to(dtype) : Tensor(),
      bias_g ? sum_dy.to(dtype, /*non_blocking=*/false, /*copy=*/true) : Tensor()};
}

// `count` [processes]: elements of a channel.
Tensor batch_norm_backward_elemt(
    const Tensor& grad_out,
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const OptionalTensor& weight,
    const Tensor& sum_dy,
    const Tensor& sum_dy_xmu,
    const Tensor& count) {
  const Tensor total = count.sum().to(mean.scalar_type());
  const Tensor slope = invstd.square() * (sum_dy_xmu / total);
  const Tensor centered = widened(input) - by_channel(mean, input);
  const Tensor grad = widened(grad_out) - by_channel(sum_dy / total, input) - centered * by_channel(slope, input);
  return (grad * by_channel(scaled(invstd, weight), input)).to(input.scalar_type());
}

} // namespace

void register_batch_norm_steps(torch::Library& m) {
  m.impl("batch_norm_update_stats", TORCH_FN(batch_norm_update_stats));
  m.impl("batch_norm_stats", TORCH_FN(batch_norm_stats));
  m.impl("batch_norm_gather_stats", TORCH_FN(batch_norm_gather_stats));
  m.impl("batch_norm_gather_stats_with_counts", TORCH_FN(batch_norm_gather_stats_with_counts));
  m.impl("batch_norm_elemt", TORCH_FN(batch_norm_elemt));
  m.impl("batch_norm_backward_reduce", TORCH_FN(batch_norm_backward_reduce));
  m.impl("batch_norm_backward_elemt", TORCH_FN(batch_norm_backward_elemt));
}

} // namespace torch_xla
