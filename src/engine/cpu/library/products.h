// Products that ATen's kernel of the row does not compute: by oneDNN if faster, in parts, of small sizes, of few rows or of groups.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/cpu/library/call.h"

namespace torch_xla::cpu {

// Whether the processor has the instructions that ATen requires for oneDNN's products of any type.
bool can_multiply_by_onednn();
// mm, or addmm with beta and alpha 1.
bool is_plain_sum(const CallSpec& call);
bool is_plain_sum(size_t num_operands, const Attrs& attrs);
// Multiplications of a call of mm, addmm or mv.
int64_t num_products(const CallSpec& call);
// True for a call of mm or addmm (beta and alpha 1) that oneDNN computes faster.
bool prefers_onednn(const CallSpec& call);
// Whether oneDNN computes all of such a call. If not, other kernels multiply the last rows, or the last numbers of sums: that bounds the
// shapes for which oneDNN makes code when batches or lengths keep changing.
bool is_whole_for_onednn(const CallSpec& call);
int64_t whole_part(int64_t extent); // of rows, or of numbers in a sum: oneDNN sees kShapesPerOctave extents between two powers of two
// Whether oneDNN gives a product with sums of this length the same values on any number of threads.
bool has_uncut_sums(int64_t length);
// Operands of mm: a, b; of addmm: bias, a, b. `out` is row-major and no operand. Throws c10::Error if oneDNN cannot compute it.
void multiply_by_onednn(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);
// The rows (dim 0) of that result from `from` on, or what the numbers of each sum (dim 1) from there on add to it.
void multiply_rest(const std::vector<at::Tensor>& operands, const at::Tensor& out, int64_t dim, int64_t from);

// True for a call of mm or addmm (beta and alpha 1) so small that ATen's call takes longer to begin than to multiply.
bool is_small_product(const CallSpec& call);
// As multiply_by_onednn(), on the calling thread; operands in any memory order.
void multiply_small(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// True for a call of mm or addmm (beta and alpha 1) of so few rows that ATen's kernel takes longer than reading the matrix, and with long
// contiguous pieces.
bool has_few_rows(const CallSpec& call);
// The same for 16-bit floats before operands have strides: true if it holds for any.
bool has_few_rows(const Graph& graph, const Node& call);
// As multiply_by_onednn(), on all threads of the team. The rows or the columns of b are contiguous; a has at most kMaxFewRows rows.
void multiply_few_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);
// The same for mv: a matrix and a vector.
bool has_vector(const CallSpec& call);
void multiply_vector(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// True for a call of mm or addmm (beta and alpha 1) that MKL shares out among threads badly, or no better than multiply_parts().
bool prefers_parts(const CallSpec& call);
// Whether multiply_parts() cuts such a product: then its values are the same on any number of threads.
bool is_cut(const CallSpec& call);
// As multiply_by_onednn(): ATen's product of some rows or columns on each thread of the team.
void multiply_parts(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// True for a call of mm or addmm that ATen computes as fast on one thread as on more.
bool is_short_product(const CallSpec& call);

// True for a call of bmm of 16-bit floats that gives the sums in float32.
bool is_widened(const CallSpec& call);
// ATen's product in float32.
void multiply_widened(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// Operands of _grouped_mm: a, b, offsets or undefined; in any memory order, unlike ATen's. Rows and columns beyond the last offset become
// 0. `out` is row-major.
void multiply_groups(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

} // namespace torch_xla::cpu
