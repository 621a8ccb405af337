// Attention: by ATen's flash kernel for the CPU if it takes the call, else by ATen's own composition; the inference forms of nn's layers.
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_native.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "core/torch_release.h"
#include "kernels/register.h"

namespace torch_xla {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// Sizes may be symbols here: torch.compile traces the code before autograd.
bool has_flash_sizes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool gqa) {
  bool same = q.sym_size(0) == k.sym_size(0) && q.sym_size(3) == k.sym_size(3) && k.sym_sizes() == v.sym_sizes() && q.sym_numel() > 0 &&
      k.sym_numel() > 0;
  return same && (gqa ? q.sym_size(1) % k.sym_size(1) == 0 : q.sym_size(1) == k.sym_size(1));
}

bool has_flash_mask(const at::Tensor& q, const at::Tensor& k, const at::Tensor& mask) {
  bool type = mask.scalar_type() == q.scalar_type() || mask.scalar_type() == c10::ScalarType::Bool;
  bool rank = mask.dim() == 2 || mask.dim() == 4;
  bool fits =
      rank && at::is_expandable_to(mask.sym_sizes(), c10::SymIntArrayRef({q.sym_size(0), q.sym_size(1), q.sym_size(2), k.sym_size(2)}));
  return type && fits && !(mask.requires_grad() && c10::GradMode::is_enabled());
}

// The conditions of ATen's CPU flash attention. ATen's composition computes or refuses all other calls, wrong ones too.
bool can_flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptionalTensor& mask, double dropout, bool gqa) {
  bool four = q.dim() == 4 && k.dim() == 4 && v.dim() == 4;
  bool type = q.is_floating_point() && q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type();
  return four && type && dropout == 0 && has_flash_sizes(q, k, v, gqa) && (!mask || !mask->defined() || has_flash_mask(q, k, *mask));
}

OptionalTensor additive_mask(const OptionalTensor& mask, const at::Tensor& query) {
  if (!mask || !mask->defined() || mask->scalar_type() != c10::ScalarType::Bool) {
    return mask;
  }
  at::Tensor zero = at::zeros({}, query.options());
  return at::where(*mask, zero, zero.add(-std::numeric_limits<double>::infinity()));
}

// torch.nn.attention.sdpa_kernel() allows some implementations. The device has flash attention and the composition, none of the others.
bool may_flash(bool fits) {
  const at::Context& allowed = at::globalContext();
  const bool flash = allowed.userEnabledFlashSDP();
  TORCH_CHECK(
      flash || allowed.userEnabledMathSDP(),
      "scaled_dot_product_attention on xla needs SDPBackend.MATH or SDPBackend.FLASH_ATTENTION, but sdpa_kernel() allows neither");
  TORCH_CHECK(
      fits || allowed.userEnabledMathSDP(),
      "scaled_dot_product_attention: sdpa_kernel() allows SDPBackend.FLASH_ATTENTION, which on xla takes 4-D floating operands of one "
      "dtype "
      "without dropout, and no mask that needs a gradient; allow SDPBackend.MATH too for other calls");
  return flash && fits;
}

at::Tensor scaled_dot_product_attention(
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const OptionalTensor& mask,
    double dropout,
    bool causal,
    std::optional<double> scale,
    bool gqa) {
  const bool three = q.dim() == 3 && k.dim() == 3 && v.dim() == 3;
  if (kFlashTakesThreeDims && three && !at::globalContext().userEnabledMathSDP()) {
    auto with_head = [](const at::Tensor& t) { return t.unsqueeze(1); };
    return scaled_dot_product_attention(with_head(q), with_head(k), with_head(v), mask, dropout, causal, scale, gqa).squeeze(1);
  }
  if (may_flash(can_flash(q, k, v, mask, dropout, gqa))) {
    // The result has the query's order if ATen takes its flash kernel, which needs adjacent elements in a head; else it is row-major.
    auto has_dense_heads = [](const at::Tensor& t) { return t.sym_stride(3) == 1; };
    const at::Tensor query = has_dense_heads(q) && has_dense_heads(k) && has_dense_heads(v) ? q : q.contiguous();
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(query, k, v, dropout, causal, additive_mask(mask, q), scale));
  }
  // Releases before 2.15 divide by the number of heads and end the process.
  const bool no_heads = gqa && k.dim() >= 3 && v.dim() >= 3 && k.sym_size(-3) == 0 && v.sym_size(-3) != 0;
  TORCH_CHECK(!no_heads, "Number of heads in key and value must be greater than 0");
  return at::native::scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale, gqa);
}

// ---- Inference calls of nn.MultiheadAttention and nn.TransformerEncoder ----

// [B, T, D] of one of the three projections as [B, H, T, D / H].
at::Tensor project(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t which, int64_t heads) {
  int64_t size = weight.size(0) / 3;
  at::Tensor y = at::linear(x, weight.narrow(0, which * size, size), bias.narrow(0, which * size, size));
  return y.view({x.size(0), x.size(1), heads, size / heads}).transpose(1, 2);
}

// A mask in the shape of the scores: kinds 0 [T, S], 1 [B, S], 2 [B, H, T, S]. True, or any number but 0, hides.
at::Tensor hide(const at::Tensor& scores, const at::Tensor& mask, std::optional<int64_t> kind) {
  at::Tensor hidden = mask.to(c10::ScalarType::Bool);
  hidden = kind == 1 ? hidden.unsqueeze(1).unsqueeze(1) : hidden;
  return scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
}

std::tuple<at::Tensor, at::Tensor> native_multi_head_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    int64_t embed_dim,
    int64_t heads,
    const at::Tensor& weight,
    const at::Tensor& bias,
    const at::Tensor& proj_weight,
    const at::Tensor& proj_bias,
    const OptionalTensor& mask,
    bool need_weights,
    bool average_weights,
    std::optional<int64_t> mask_kind) {
  TORCH_CHECK(query.dim() == 3 && key.dim() == 3 && value.dim() == 3, "expected 3-D `query`, `key` and `value`");
  TORCH_CHECK(weight.size(0) == 3 * embed_dim, "expected `qkv_weight` first dim to be 3x embed_dim");
  TORCH_CHECK(embed_dim % heads == 0, "`embed_dim` must divide evenly by `num_heads`");
  at::Tensor q = project(query, weight, bias, 0, heads).mul(1 / std::sqrt(static_cast<double>(embed_dim / heads)));
  at::Tensor scores = at::matmul(q, project(key, weight, bias, 1, heads).transpose(2, 3));
  at::Tensor weights = at::_softmax(mask ? hide(scores, *mask, mask_kind) : scores, -1, false);
  at::Tensor context = at::matmul(weights, project(value, weight, bias, 2, heads)).transpose(1, 2);
  at::Tensor output = at::linear(context.reshape({query.size(0), query.size(1), embed_dim}), proj_weight, proj_bias);
  if (!need_weights) {
    return {output, at::Tensor()};
  }
  return {output, average_weights ? weights.mean(1) : weights};
}

// False: nn.TransformerEncoder keeps the padded tokens: nested tensors would move the layers to the CPU.
bool nested_tensor_from_mask_left_aligned(const at::Tensor&, const at::Tensor&) {
  return false;
}

} // namespace

void register_attention(torch::Library& m) {
  m.impl("scaled_dot_product_attention", TORCH_FN(scaled_dot_product_attention));
}

void register_transformer_layers(torch::Library& m) {
  m.impl("_native_multi_head_attention", TORCH_FN(native_multi_head_attention));
  m.impl("_transformer_encoder_layer_fwd", &at::native::transformer_encoder_layer_forward);
  m.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(nested_tensor_from_mask_left_aligned));
}

} // namespace torch_xla
