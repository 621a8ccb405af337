// The op tables: one row per ATen operation, one file per family.
#pragma once

#include <optional>
#include <span>

#include "ir/builder.h"
#include "ir/op.h"

namespace torch_xla {

std::span<const Op> unary_ops(); // pointwise, one tensor operand
std::span<const Op> binary_ops(); // pointwise, two or more operands, comparisons, where, lerp, addcmul
std::span<const Op> activation_ops(); // relu, gelu, ... and their backward forms
std::span<const Op> reduce_ops(); // sum, mean, amax, any, var, norms
std::span<const Op> order_ops(); // median, sort, topk, cumsum
std::span<const Op> softmax_ops(); // softmax, log_softmax, forward and backward
std::span<const Op> norm_ops(); // layer_norm, batch_norm, group_norm, forward and backward
std::span<const Op> loss_ops(); // nll_loss, mse_loss, ...
std::span<const Op> matmul_ops(); // mm, addmm, bmm, baddbmm, ...
std::span<const Op> conv_ops(); // convolution, pooling, forward and backward
std::span<const Op> interpolation_ops(); // of images, forward and backward
std::span<const Op> pad_ops(); // padding, pixel_shuffle
std::span<const Op> index_ops(); // embedding, gather, scatter, index, ...
std::span<const Op> bag_ops(); // embedding bags, segments, repeats
std::span<const Op> join_ops(); // cat, flip, roll, tril, searchsorted, grid_sampler, ...
std::span<const Op> random_ops(); // uniform, normal, bernoulli, dropout
std::span<const Op> create_ops(); // full, arange, eye
std::span<const Op> rnn_ops(); // mkldnn_rnn_layer
std::span<const Op> attention_ops(); // scaled dot product attention
std::span<const Op> complex_ops(); // complex numbers: parts, conversions, Fourier transforms
std::span<const Op> quantize_ops(); // fake quantization
std::span<const Op> optimizer_ops(); // updates of fused optimizers and of the gradient scaler
std::span<const Op> special_ops(); // Bessel functions, orthogonal polynomials, gamma functions
std::span<const Op> linalg_ops(); // factorizations, solvers, eigenvalues
std::span<const Op> collective_ops(); // between the replicas of a run
std::span<const Op> control_ops(); // loops
std::span<const Op> shard_ops(); // on the shards of single devices
std::span<const Op> torchvision_ops(); // torchvision: pooling of regions, deformable convolution

// All rows, each table in the order above.
std::span<const std::span<const Op>> op_tables();

std::optional<Sharding> find_constraint(const Node& node); // of xla::sharding_constraint; attributes: its tiles and devices
std::optional<Sharding> find_taken(const Node& node); // of xla::take_shard
std::optional<Sharding> find_joined(const Node& node); // of xla::join_shards
std::optional<Sharding> find_named(const Node& node); // of any of the three
bool is_of_shards(const Op& op); // of take_shard, join_shards and the collectives between them
// Forward: operands query, key, value, mask; attributes dropout, is_causal, scale. Keys and values, [B, H, T, E], may have fewer heads than
// queries, each for a group of their heads.
bool is_attention(const Op& op);
bool is_attention_backward(const Op& op);
// Operands input, weight, bias; attributes stride, padding, dilation, transposed, output padding, groups.
bool is_convolution(const Op& op);
// Operands gradient, input, weight.
bool is_convolution_backward(const Op& op);
// Operands input, weight, bias, running mean and variance; attributes training, momentum, eps.
bool is_batch_norm(const Op& op);
bool is_matrix_product(const Op& op); // of two matrices, without more: mm
bool is_conversion(const Op& op); // xla::convert, of a trace
bool is_mark(const Op& op); // xla::mark_tensor, whose attributes are in ir/composite.h

} // namespace torch_xla
