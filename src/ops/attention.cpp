// Scaled dot product attention: calls of ATen's flash attention for the CPU, and their expansions.
#include "core/errors.h"
#include "ops/math.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// Operands from `first` on: query [B, H, Tq, E], key and value [B, Hk, Tk, E]; heads are shared if Hk < H. Attribute dropout.
void check_attention(const InferContext& c, size_t first, size_t mask) {
  for (size_t i = first; i < first + 3; ++i) {
    if (c.operand(i).dims.size() != 4 || !is_float(c.operand(i).dtype)) {
      fall_back("attention of this input");
    }
    XLA_CHECK(c.operand(i).numel() > 0, "attention of nothing");
    same_dtype(c, first, i);
  }
  Dims q = c.operand(first).dims;
  Dims k = c.operand(first + 1).dims;
  Dims weights{q[0], q[1], q[2], k[2]};
  bool fits = k == c.operand(first + 2).dims && q[0] == k[0] && q[1] % k[1] == 0 && q[3] == k[3];
  if (!fits || (c.has(mask) && !expands_to(c.operand(mask).dims, weights))) {
    fall_back("attention of these sizes");
  }
  if (c.get_double(0) != 0) {
    fall_back("attention with dropout");
  }
}

// Results output and logsumexp.
void infer_flash(InferContext& c) {
  check_attention(c, 0, 3);
  Dims q = c.operand(0).dims;
  like_operand<0>(c);
  c.add_result(c.operand(0).dtype == DType::F64 ? DType::F64 : DType::F32, {q[0], q[1], q[2]});
}

// Operands gradient, query, key, value, output, logsumexp, mask.
void infer_flash_backward(InferContext& c) {
  check_attention(c, 1, 6);
  Dims q = c.operand(1).dims;
  if (c.operand(0).dims != q || c.operand(4).dims != q || c.operand(5).numel() != q[0] * q[1] * q[2]) {
    fall_back("attention with gradients of these sizes");
  }
  like_operand<1>(c);
  like_operand<2>(c);
  like_operand<3>(c);
}

// ---- Expansions. A mesh may cut B and H, so the two are one dim in products only ----

Ex batches(Ex x) {
  const Dims& dims = x.type().dims;
  return x.reshape({dims[0] * dims[1], dims[2], dims[3]});
}

// Of each matrix.
Ex transposed(Ex x) {
  return {&x.b(), x.b().permute(x.id(), x.type().dims.size() == 4 ? Dims{0, 1, 3, 2} : Dims{0, 2, 1})};
}

// Keys or values for each head of the query: [B, Hk, T, E] -> [B, H, T, E].
Ex for_heads(Ex x, int64_t heads) {
  Dims d = x.type().dims;
  Ex grouped = x.reshape({d[0], d[1], 1, d[2], d[3]});
  Ex repeated(&x.b(), x.b().broadcast(grouped.id(), {d[0], d[1], heads / d[1], d[2], d[3]}));
  return repeated.reshape({d[0], heads, d[2], d[3]});
}

// The inverse: sums over the heads that share keys.
Ex over_heads(Ex x, const Type& type) {
  const Dims& d = type.dims;
  int64_t heads = x.type().numel() / (d[0] * d[2] * d[3]);
  return reduce_sum(x.reshape({d[0], d[1], heads / d[1], d[2], d[3]}), {2});
}

// [B, H, M, K] times the batches [B * H, K, N], as ATen's kernel multiplies them: 16-bit floats by 16-bit floats.
Ex product(Ex a, Ex b, bool rounds = false) {
  const Dims d = a.type().dims;
  return batch_product(batches(a.to(b.dtype())), b, rounds).reshape({d[0], d[1], d[2], b.type().dims[2]});
}

// [Tq, Tk]: the keys up to each query's own position.
Ex causal_keys(ExpandContext& c, int64_t queries, int64_t keys) {
  Ex row(&c.b(), c.b().iota({queries, keys}, 0, DType::I32));
  Ex column(&c.b(), c.b().iota({queries, keys}, 1, DType::I32));
  return column <= row;
}

// Query times key, scaled and masked: [B, H, Tq, Tk]. Attributes is_causal (1), scale.
Ex scores(ExpandContext& c, Ex query, Ex key, size_t mask) {
  Dims q = query.type().dims;
  int64_t keys = key.type().dims[2];
  double scale = c.get_double(2, 1 / std::sqrt(static_cast<double>(q[3])));
  Ex s = product(query, transposed(batches(key))) * scale;
  if (c.get_bool(1)) {
    s = select(causal_keys(c, q[2], keys), s, -kInfinity);
  }
  if (c.has(mask)) {
    s = c.raw(mask).dtype() == DType::Bool ? select(c.raw(mask), s, -kInfinity) : s + c.raw(mask).to(s.dtype());
  }
  return s;
}

// The rows whose keys are all hidden, by the mask of the forward form: of its dims, with one key.
Ex hidden_rows(ExpandContext& c) {
  Ex mask = c.raw(3);
  Ex open = mask.dtype() == DType::Bool ? mask : mask != -kInfinity;
  if (c.get_bool(1)) {
    open = open & causal_keys(c, c.operand(0).dims[2], c.operand(1).dims[2]);
  }
  return !reduce_max(open, {static_cast<int64_t>(open.type().dims.size()) - 1});
}

// Rows without any key give 0: only a mask hides all, is_causal leaves the first one. Between the products stands the plain softmax,
// divided before the second one: in this form libtpu makes one kernel of attention.
void expand_flash(ExpandContext& c) {
  const Dims q = c.operand(0).dims;
  Ex s = scores(c, c.raw(0), for_heads(c.raw(1), q[1]), 3);
  Ex top = reduce_max(s, {3});
  Ex weights = exp(s - top);
  Ex sum = reduce_sum(weights, {3});
  Ex out = product(weights / sum, batches(for_heads(c.raw(2), q[1])));
  Ex total = top + log(sum);
  if (c.has(3)) {
    Ex hidden = hidden_rows(c);
    out = select(hidden, 0.0, out);
    total = select(hidden, -kInfinity, total);
  }
  c.set(0, out);
  c.set(1, total);
}

void expand_flash_backward(ExpandContext& c) {
  Ex g = c.raw(0);
  Ex query = c.raw(1);
  const Dims q = query.type().dims;
  Ex key = for_heads(c.raw(2), q[1]);
  Ex value = for_heads(c.raw(3), q[1]);
  Ex s = scores(c, query, key, 6);
  Ex total = c.raw(5).to(s.dtype()).reshape({q[0], q[1], q[2], 1});
  Ex weights = exp(s - (c.has(6) ? select(total == -kInfinity, 0.0, total) : total)); // 0 in rows without any key
  Ex weighted = reduce_sum(c.computed(0) * c.computed(4), {3});
  Ex slope = weights * (product(g, transposed(batches(value))) - weighted) * c.get_double(2, 1 / std::sqrt(static_cast<double>(q[3])));
  slope = slope.to(query.dtype());
  const bool has_own_keys = c.operand(2).dims[1] == q[1];
  c.set(0, product(slope, batches(key), true));
  c.set(1, over_heads(product(transposed(slope), batches(query), has_own_keys), c.operand(2)));
  c.set(2, over_heads(product(transposed(weights.to(g.dtype())), batches(g), has_own_keys), c.operand(3)));
}

// Short sequences in 16 bits, with small score matrices: ATen's kernel, which multiplies small blocks, takes 2.4 to 4.5 times as long with
// 64 and 128 keys, 1.05 to 1.25 times with 256 (measured on two processors with AMX). In float32 and forwards it is as fast or faster.
bool has_short_sequences(const InferContext& c) {
  constexpr int64_t kMostKeys = 256;
  constexpr int64_t kMostScores = 8 << 20;
  const Dims q = c.operand(1).dims;
  const int64_t keys = c.operand(2).dims[2];
  return is_reduced_float(c.operand(1).dtype) && keys <= kMostKeys && q[0] * q[1] * q[2] * keys <= kMostScores;
}

// As tracers expect: the output keeps the order of the query, gradients lie as the kernel writes them.
constinit const Op kRows[] = {
    LIBRARY(
        "_scaled_dot_product_flash_attention_for_cpu",
        infer_flash,
        .expand = expand_flash,
        .layout = ResultLayout::kOfOperand,
        .kernel_layout = ResultLayout::kAttention,
        .reads = kDenseRows,
        .traits = kHasProducts),
    LIBRARY(
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        infer_flash_backward,
        .expand = expand_flash_backward,
        .expands = has_short_sequences,
        .layout = ResultLayout::kAttention,
        .reads = kDenseRows,
        .traits = kHasProducts),
};

} // namespace

std::span<const Op> attention_ops() {
  return kRows;
}

bool is_attention(const Op& op) {
  return op.expand == &expand_flash;
}

bool is_attention_backward(const Op& op) {
  return op.expand == &expand_flash_backward;
}

} // namespace torch_xla
