// Products by other kernels than the row's. On processors that are not Intel's, MKL uses its slower kernels (docs/decisions/products.md).
#include "engine/cpu/library/products.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "engine/cpu/cost.h"
#include "engine/cpu/few_rows/few_rows.h"
#include "engine/cpu/host.h"
#include "engine/cpu/library/half_products.h"
#include "engine/cpu/threads/team.h"

namespace at::native {
// In libtorch_cpu, but in no header that torch installs: result = beta * result + alpha * a b.
TORCH_API void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta, float alpha);
} // namespace at::native

namespace torch_xla::cpu {
namespace {

bool is_foreign_processor() {
#if defined(__x86_64__)
  return !__builtin_cpu_is("intel");
#else
  return false; // no MKL
#endif
}

// Whether the elements of a dim lie in pieces long enough for add_row_product().
bool has_long_pieces(int64_t extent, int64_t stride) {
  return stride == 1 && extent >= kShortestPiece;
}

bool is_one(const Attr& attr) {
  const auto* integer = std::get_if<int64_t>(&attr);
  const auto* number = std::get_if<double>(&attr);
  return (integer && *integer == 1) || (number && *number == 1);
}

// Most numbers of a product's operands that one thread reads as fast as two: more do not fit its cache together.
int64_t max_short_numbers() {
  constexpr int64_t kShare = 4;
  return host().second_cache_bytes / kShare / static_cast<int64_t>(item_size(DType::F32));
}

// The dim of `a` to cut: the batch's, as its pieces have no gaps in memory.
int64_t cut_dim(int64_t row_stride, int64_t column_stride) {
  return row_stride >= column_stride ? 0 : 1;
}

// Whether add_row_product() can read the matrix, and gains.
bool is_readable_matrix(const CallSpec::Tensor& t) {
  const Dims& dims = t.type.dims;
  static const bool is_foreign = is_foreign_processor();
  const bool is_of_use = t.type.dtype == DType::F32 ? is_foreign : is_reduced_float(t.type.dtype);
  return is_of_use && can_multiply_rows() && (has_long_pieces(dims[0], t.strides[0]) || has_long_pieces(dims[1], t.strides[1]));
}

bool is_readable_matrix(const at::Tensor& t) {
  return is_readable_matrix({{DType::F32, {t.size(0), t.size(1)}}, {t.stride(0), t.stride(1)}});
}

// A matrix in memory; a vector repeats for each row, a number for all elements.
struct Matrix {
  int64_t rows, columns;

  explicit Matrix(const at::Tensor& t)
      : rows(t.dim() == 2 ? t.size(0) : 1), columns(t.dim() > 0 ? t.size(-1) : 1), data_(t.const_data_ptr<float>()) {
    row_stride_ = rows == 1 ? 0 : t.stride(0);
    column_stride_ = columns == 1 ? 0 : t.stride(-1);
  }
  float at(int64_t row, int64_t column) const {
    return data_[row * row_stride_ + column * column_stride_];
  }

 private:
  const float* data_;
  int64_t row_stride_, column_stride_;
};

// The sum over a row of one and a column of the other, in four independent parts.
float multiply_row(const Matrix& a, int64_t row, const Matrix& b, int64_t column) {
  std::array<float, 4> sums{};
  int64_t k = 0;
  for (; k + 4 <= a.columns; k += 4) {
    for (size_t part = 0; part < 4; ++part) {
      sums[part] += a.at(row, k + static_cast<int64_t>(part)) * b.at(k + static_cast<int64_t>(part), column);
    }
  }
  for (; k < a.columns; ++k) {
    sums[0] += a.at(row, k) * b.at(k, column);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The part of a matrix that lies between two offsets; a batch's matrix `group`.
at::Tensor group_of(const at::Tensor& t, int64_t dim, int64_t group, int64_t from, int64_t to) {
  return t.dim() == 3 ? t.select(0, group) : t.slice(dim, from, to);
}

} // namespace

bool can_multiply_by_onednn() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
  return true;
#endif
}

int64_t whole_part(int64_t extent) {
  const int64_t unit = std::max<int64_t>(1, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(extent))) / kShapesPerOctave);
  return extent / unit * unit;
}

bool is_plain_sum(size_t num_operands, const Attrs& attrs) {
  return num_operands == 2 || (attrs.size() == 2 && is_one(attrs[0]) && is_one(attrs[1]));
}

bool is_plain_sum(const CallSpec& call) {
  return is_plain_sum(call.operands.size(), call.attrs);
}

int64_t num_products(const CallSpec& call) {
  const Dims& b = call.operands.back().type.dims;
  return call.operands[call.operands.size() - 2].type.numel() * (b.size() > 1 ? b[1] : 1);
}

bool prefers_onednn(const CallSpec& call) {
  static const bool is_fitting_processor = is_foreign_processor() && can_multiply_by_onednn();
  if (!is_fitting_processor || !at::globalContext().userEnabledMkldnn()) {
    return false;
  }
  const Type& a = call.operands[call.operands.size() - 2].type;
  return is_plain_sum(call) && a.dtype == DType::F32 && num_products(call) >= kMinProducts;
}

bool is_whole_for_onednn(const CallSpec& call) {
  const CallSpec::Tensor& a = call.operands[call.operands.size() - 2];
  const int64_t extent = a.type.dims[cut_dim(a.strides[0], a.strides[1])];
  return whole_part(extent) == extent;
}

bool prefers_parts(const CallSpec& call) {
#if defined(__x86_64__)
  constexpr bool has_mkl = true;
#else
  constexpr bool has_mkl = false;
#endif
  return has_mkl && is_plain_sum(call) && call.operands.back().type.dtype == DType::F32 && !is_short_product(call) &&
      num_products(call) >= 2 * kProductsPerThread;
}

bool is_cut(const CallSpec& call) {
  const Dims& result = call.results[0].type.dims;
  return std::max(result[0], result[1]) > kPartUnit;
}

bool is_small_product(const CallSpec& call) {
  return is_plain_sum(call) && call.operands.back().type.dtype == DType::F32 && num_products(call) <= kMaxSmallProducts;
}

bool has_few_rows(const CallSpec& call) {
  const Dims& a = call.operands[call.operands.size() - 2].type.dims;
  return is_plain_sum(call) && a[0] <= kMaxFewRows && is_readable_matrix(call.operands.back());
}

bool has_few_rows(const Graph& graph, const Node& call) {
  const size_t n = call.operands.size();
  const Dims& a = graph.type(call.operands[n - 2]).dims;
  const Dims& b = graph.type(call.operands[n - 1]).dims;
  return can_multiply_rows() && is_plain_sum(n, call.attrs) && a[0] <= kMaxFewRows && std::min(b[0], b[1]) >= kShortestPiece;
}

bool has_vector(const CallSpec& call) {
  return is_readable_matrix(call.operands[0]);
}

bool is_short_product(const CallSpec& call) {
  const int64_t numbers = call.operands[call.operands.size() - 2].type.numel() + call.operands.back().type.numel();
  return num_products(call) <= kMaxShortProducts && numbers <= max_short_numbers();
}

bool is_widened(const CallSpec& call) {
  return call.results[0].type.dtype != call.operands[0].type.dtype;
}

void multiply_widened(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  at::Tensor out = outs[0];
  at::bmm_out(out, operands[0].to(at::kFloat), operands[1].to(at::kFloat));
}

void multiply_small(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  const Matrix a(operands[operands.size() - 2]), b(operands.back());
  const std::optional<Matrix> bias = operands.size() == 3 ? std::optional<Matrix>(operands[0]) : std::nullopt;
  float* out = outs[0].data_ptr<float>();
  for (int64_t row = 0; row < a.rows; ++row) {
    for (int64_t column = 0; column < b.columns; ++column) {
      const float product = multiply_row(a, row, b, column);
      *out++ = bias ? product + bias->at(row, column) : product;
    }
  }
}

void multiply_few_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  const at::Tensor a = operands[operands.size() - 2].contiguous();
  const at::Tensor& b = operands.back();
  const DType dtype = static_cast<DType>(b.scalar_type());
  const bool b_is_transposed = b.stride(0) == 1 && (b.stride(1) != 1 || b.size(1) == 1);
  RowProduct product{
      .dtype = dtype,
      .rows = a.size(0),
      .inner = a.size(1),
      .columns = b.size(1),
      .a = a.const_data_ptr(),
      .b = b.const_data_ptr(),
      .b_dtype = dtype,
      .b_stride = b.stride(b_is_transposed ? 1 : 0),
      .b_is_transposed = b_is_transposed,
      .out = outs[0].data_ptr()};
  at::Tensor bias;
  if (operands.size() == 3) {
    bias = operands[0].expand_as(outs[0]);
    product.bias = bias.const_data_ptr();
    product.bias_strides = {bias.stride(0), bias.stride(1)};
  }
  multiply_rows(product);
}

void multiply_vector(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  multiply_few_rows({operands[1].unsqueeze(0), operands[0].t()}, {outs[0].unsqueeze(0)});
}

bool has_uncut_sums(int64_t length) {
  return length < kLeastCutSum;
}

void multiply_parts(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  const at::Tensor& a = operands[operands.size() - 2];
  const at::Tensor& b = operands.back();
  const int64_t products = a.size(0) * a.size(1) * b.size(1);
  const int64_t dim = a.size(0) > b.size(1) ? 0 : 1; // of the result: the longer one is cut
  const int64_t extent = outs[0].size(dim);
  const int64_t parts = std::clamp<int64_t>(products / kProductsPerThread, 1, at::get_num_threads());
  const int64_t piece = (extent + parts * kPartUnit - 1) / (parts * kPartUnit) * kPartUnit;
  const bool cuts = extent > piece; // where there is a team, is_cut()
  auto multiply_part = [&](int64_t part) {
    auto part_of = [&](const at::Tensor& t) { return t.slice(dim, part * piece, std::min(extent, (part + 1) * piece)); };
    at::Tensor out = part_of(outs[0]);
    const at::Tensor rows = dim == 0 ? part_of(a) : a;
    const at::Tensor columns = dim == 1 ? part_of(b) : b;
    const bool is_narrow = std::min(out.size(0), out.size(1)) < kPartUnit;
    const OneThread one_thread(cuts && (is_narrow || a.size(1) > kLongestUncutSum));
    if (operands.size() == 3) {
      at::addmm_out(out, part_of(operands[0].expand_as(outs[0])), rows, columns);
    } else {
      at::mm_out(out, rows, columns);
    }
  };
  if (!cuts) { // MKL may cut the sums, which would not be the same on one thread
    multiply_part(0);
    return;
  }
  share_out((extent + piece - 1) / piece, 1, products / kProductsPerThread, [&](int64_t begin, int64_t end) {
    c10::InferenceMode inference; // the calls' tensors were made in it
    for (int64_t part = begin; part < end; ++part) {
      multiply_part(part);
    }
  });
}

void multiply_rest(const std::vector<at::Tensor>& operands, const at::Tensor& out, int64_t dim, int64_t from) {
  const at::Tensor& whole = operands[operands.size() - 2];
  const at::Tensor a = whole.slice(dim, from);
  if (dim == 1) { // more of the same sums
    multiply_parts({out, a, operands.back().slice(0, from)}, {out});
    return;
  }
  std::vector<at::Tensor> rest{a, operands.back()};
  if (operands.size() == 3) {
    rest.insert(rest.begin(), operands[0].expand_as(out).slice(0, from));
  }
  a.size(0) <= kMaxFewRows&& is_readable_matrix(rest.back()) ? multiply_few_rows(rest, {out.slice(0, from)})
                                                             : multiply_parts(rest, {out.slice(0, from)});
}

void multiply_by_onednn(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  const at::Tensor& out = outs[0];
  const at::Tensor& a = operands[operands.size() - 2];
  const at::Tensor& b = operands.back();
  const int64_t length = b.size(0);
  const int64_t dim = cut_dim(a.stride(0), a.stride(1));
  const int64_t whole = whole_part(a.size(dim));
  {
    const OneThread one_thread(has_uncut_sums(length) && takes_one_thread(out.numel() * length / kProductsPerThread));
    const bool sums = operands.size() == 3;
    auto cut = [&](const at::Tensor& t, int64_t at) { return whole < t.size(at) ? t.slice(at, 0, whole) : t; };
    const at::Tensor begin = dim == 0 ? cut(out, 0) : out;
    if (sums) {
      const at::Tensor added = operands[0].expand_as(out);
      begin.copy_(dim == 0 ? cut(added, 0) : added);
    }
    at::native::mkldnn_matmul(cut(a, dim), dim == 0 ? b : cut(b, 0), begin, sums ? 1 : 0, 1);
  }
  if (whole < a.size(dim)) {
    multiply_rest(operands, out, dim, whole);
  }
}

void multiply_groups(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  const at::Tensor& out = outs[0];
  const at::Tensor& a = operands[0];
  const at::Tensor& b = operands[1];
  const at::Tensor& offsets = operands[2];
  if (!offsets.defined()) {
    at::bmm_out(const_cast<at::Tensor&>(out), a, b);
    return;
  }
  out.zero_();
  bool inner = a.dim() == 2 && b.dim() == 2; // the offsets cut the dim that is summed over
  int64_t extent = a.dim() == 2 ? a.size(inner ? 1 : 0) : b.size(1);
  int64_t from = 0;
  for (int64_t group = 0; group < offsets.numel(); ++group) {
    int64_t to = std::clamp<int64_t>(offsets.data_ptr<int32_t>()[group * offsets.stride(0)], 0, extent);
    if (to > from) {
      at::Tensor part = group_of(out, a.dim() == 2 ? 0 : 1, group, from, to);
      at::mm_out(part, group_of(a, inner ? 1 : 0, group, from, to), group_of(b, inner ? 0 : 1, group, from, to));
    }
    from = to;
  }
}

} // namespace torch_xla::cpu
