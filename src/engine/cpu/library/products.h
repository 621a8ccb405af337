// Products that are not computed by ATen's kernel of the row: by oneDNN where it is faster, in parts, small ones, those of few rows or
// groups.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/cpu/library/call.h"

namespace torch_xla::cpu {

// Whether the processor has the instructions without which ATen refuses oneDNN's product, whatever the type.
bool can_multiply_by_onednn();
// mm, or addmm with beta and alpha 1.
bool is_plain_sum(const CallSpec& call);
bool is_plain_sum(size_t num_operands, const Attrs& attrs);
// Multiplications of a call of mm, addmm or mv.
int64_t num_products(const CallSpec& call);
// True for a call of mm or addmm (beta and alpha 1) that oneDNN computes faster.
bool prefers_onednn(const CallSpec& call);
// Whether oneDNN is given all of such a call. Else the last rows, or numbers of sums, are multiplied by other kernels: where batches or
// lengths go on changing that bounds the shapes for which oneDNN makes code.
bool is_whole_for_onednn(const CallSpec& call);
// Whether oneDNN gives a product with sums of so many numbers the same values on any number of threads.
bool has_uncut_sums(int64_t length);
// Operands of mm: a, b; of addmm: bias, a, b. `out` is row-major and none of them. Throws c10::Error where oneDNN cannot.
void multiply_by_onednn(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// True for a call of mm or addmm (beta and alpha 1) of so few numbers that ATen's takes longer to begin than to multiply.
bool is_small_product(const CallSpec& call);
// As multiply_by_onednn(), on the calling thread; of any memory order.
void multiply_small(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// True for a call of mm or addmm (beta and alpha 1) of so few rows that ATen's takes longer than reading the matrix, in long pieces.
bool has_few_rows(const CallSpec& call);
// As multiply_by_onednn(). Rows or columns of b are side by side, and a tensor of at most kMaxFewRows rows; on all threads of the team.
void multiply_few_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);
// The same for mv, whose operands are a matrix and a vector.
bool has_vector(const CallSpec& call);
void multiply_vector(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// True for a call of mm or addmm (beta and alpha 1) that MKL shares out among threads no better, or badly.
bool prefers_parts(const CallSpec& call);
// Whether multiply_parts() cuts such a product for a team: its values are the same then on any number of threads.
bool is_cut(const CallSpec& call);
// As multiply_by_onednn(): ATen's product of some rows or columns on each thread of the team.
void multiply_parts(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// True for a call of mm or addmm that ATen computes on one thread as fast as on more.
bool is_short_product(const CallSpec& call);

// True for a call of bmm of 16-bit floats that gives the sums in float32.
bool is_widened(const CallSpec& call);
// ATen's product in float32.
void multiply_widened(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// Operands of _grouped_mm: a, b, offsets or undefined; in any memory order, which ATen's refuses. Rows and columns beyond the last offset
// become 0. `out` is row-major.
void multiply_groups(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

} // namespace torch_xla::cpu
