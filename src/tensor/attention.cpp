// Attention by ATen's flash kernel for the CPU where it takes the call, else by ATen's own composition.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <limits>

#include "tensor/basic.h"

namespace torch_xla {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool has_flash_sizes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool gqa) {
  bool same = q.size(0) == k.size(0) && q.size(3) == k.size(3) && k.sizes() == v.sizes() && q.numel() > 0 && k.numel() > 0;
  return same && (gqa ? q.size(1) % k.size(1) == 0 : q.size(1) == k.size(1));
}

bool has_flash_mask(const at::Tensor& q, const at::Tensor& k, const at::Tensor& mask) {
  bool type = mask.scalar_type() == q.scalar_type() || mask.scalar_type() == c10::ScalarType::Bool;
  bool rank = mask.dim() == 2 || mask.dim() == 4;
  bool fits = rank && at::is_expandable_to(mask.sizes(), c10::IntArrayRef({q.size(0), q.size(1), q.size(2), k.size(2)}));
  return type && fits && !(mask.requires_grad() && c10::GradMode::is_enabled());
}

// The conditions of ATen's flash attention for the CPU. What they leave out, wrong calls too, is ATen's composition's to compute or refuse.
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

at::Tensor scaled_dot_product_attention(
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const OptionalTensor& mask,
    double dropout,
    bool causal,
    std::optional<double> scale,
    bool gqa) {
  if (can_flash(q, k, v, mask, dropout, gqa)) {
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal, additive_mask(mask, q), scale));
  }
  return at::native::scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale, gqa);
}

} // namespace

void register_attention(torch::Library& m) {
  m.impl("scaled_dot_product_attention", TORCH_FN(scaled_dot_product_attention));
}

} // namespace torch_xla
