// Uses the operators of torch.compile's frozen graphs, which take oneDNN's own tensors.
#include "engine/cpu/library/packed.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstring>

#include "engine/cpu/cost.h"
#include "engine/cpu/library/args.h"
#include "engine/cpu/library/products.h"
#include "engine/cpu/library/step_error.h"
#include "engine/cpu/library/untold.h"

namespace torch_xla::cpu {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Numbers = c10::List<std::optional<at::Scalar>>;

OperandRange last_operand(size_t num_operands) {
  const auto n = static_cast<int32_t>(num_operands);
  return {n - 1, n};
}

// ATen itself gives 16-bit products, except tiny ones, to oneDNN.
bool is_product_by_onednn(const CallSpec& call) {
  const bool is_bf16 = call.operands.back().type.dtype == DType::BF16;
  const bool fits = is_bf16 ? can_multiply_by_onednn() && at::globalContext().userEnabledMkldnn() : prefers_onednn(call);
  return fits && !has_few_rows(call);
}

bool fits_matrix(const CallSpec& call, const torch::jit::Stack& /*arguments*/) {
  const CallSpec::Tensor& a = call.operands[call.operands.size() - 2];
  const CallSpec::Tensor& b = call.operands.back();
  const CallSpec::Tensor& bias = call.operands[0];
  const bool has_row = call.operands.size() == 2 || (bias.type.dims == Dims{b.type.dims[1]} && is_row_major(bias));
  return b.type.nbytes() >= kLeastKeptBytes && a.type.numel() > 0 && is_plain_sum(call) && has_row && is_row_major(a) &&
      is_row_major(call.results[0]) && is_product_by_onednn(call);
}

// The arguments of aten::mm, or of aten::addmm with a bias before them and two factors after.
struct Product {
  const bool sums;
  const OptionalTensor bias;
  const at::Tensor a, b;

  explicit Product(const torch::jit::Stack& arguments)
      : sums(arguments.size() >= 5),
        bias(sums ? OptionalTensor(arguments[0].toTensor()) : std::nullopt),
        a(arguments[sums ? 1 : 0].toTensor()),
        b(arguments[sums ? 2 : 1].toTensor()) {}
};

// For any number of rows: oneDNN uses the same order for all numbers except one.
at::Tensor pack_matrix(const at::Tensor& b) {
  constexpr int64_t kRows = 64;
  static const auto reorder = find_operator<at::Tensor(const at::Tensor&, std::optional<int64_t>)>("mkldnn::_reorder_linear_weight");
  return reorder.call(b.t(), kRows);
}

Packed pack_last(const torch::jit::Stack& arguments) {
  return {pack_matrix(Product(arguments).b), std::nullopt};
}

at::Tensor unpack_matrix(const Packed& packed, at::IntArrayRef /*sizes*/) {
  return packed.weight.to_dense().t();
}

// multiply_by_onednn() cuts those of float32.
int64_t packed_rows(at::ScalarType dtype, int64_t rows) {
  return dtype == at::kFloat ? whole_part(rows) : rows;
}

// Whether the rows of `a` beyond packed_rows() read the weight as it was.
bool reads_for_rest(const CallSpec& call) {
  const Type& a = call.operands[call.operands.size() - 2].type;
  return packed_rows(scalar_type(a.dtype), a.dims[0]) < a.dims[0] && !call.weight_stays;
}

at::Tensor multiply(const at::Tensor& a, const at::Tensor& weight, const OptionalTensor& bias) {
  static const auto op = find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, const OptionalTensor&, std::string_view, Numbers, std::optional<std::string_view>)>(
      "mkldnn::_linear_pointwise");
  return op.call(a, weight, bias, "none", Numbers(), "");
}

// Rows up to `whole`, then the others.
void multiply_in_two(const at::Tensor& a, const at::Tensor& weight, const OptionalTensor& bias, int64_t whole, const at::Tensor& out) {
  out.slice(0, 0, whole).copy_(multiply(a.slice(0, 0, whole), weight, bias));
  out.slice(0, whole).copy_(multiply(a.slice(0, whole), weight, bias));
}

at::Tensor multiply_packed(const torch::jit::Stack& arguments, const Packed& packed, bool only) {
  const Product product(arguments);
  const int64_t rows = product.a.size(0);
  const int64_t whole = packed_rows(product.a.scalar_type(), rows);
  if (whole == rows) {
    return multiply(product.a, packed.weight, product.bias);
  }
  at::Tensor out = at::empty({rows, product.b.size(1)}, product.a.options());
  if (only) {
    multiply_in_two(product.a, packed.weight, product.bias, whole, out);
    return out;
  }
  out.slice(0, 0, whole).copy_(multiply(product.a.slice(0, 0, whole), packed.weight, product.bias));
  std::vector<at::Tensor> operands{product.a, product.b};
  if (product.bias) {
    operands.insert(operands.begin(), *product.bias);
  }
  multiply_rest(operands, out, 0, whole);
  return out;
}

void hash_tensor(const CallSpec::Tensor& t, Hash128& hash) {
  hash.add(static_cast<uint64_t>(t.type.dtype));
  for (const Dims* numbers : {&t.type.dims, &t.strides}) {
    hash.add_bytes(numbers->begin(), numbers->size() * sizeof(int64_t));
  }
}

Hash128 key_of_matrix(const CallSpec& call) {
  Hash128 hash;
  hash_tensor(call.operands.back(), hash);
  return hash;
}

} // namespace

Hash128 key_of_convolution(const CallSpec& call) {
  Hash128 hash;
  for (const Attr& attr : call.attrs) {
    hash_attr(attr, hash);
  }
  hash_tensor(call.operands[0], hash);
  hash_tensor(call.operands[1], hash);
  return hash;
}

bool has_packed_rest(const CallSpec& call) {
  const Type& a = call.operands[call.operands.size() - 2].type;
  const int64_t rest = a.dtype == DType::F32 && a.dims[0] > 0 ? a.dims[0] - whole_part(a.dims[0]) : 0;
  return rest > 0 && rest <= kMaxFewRows && fits_matrix(call, {});
}

bool weight_stays(const Graph& graph, ValueId weight) {
  for (const Node* view = graph.find_producer(weight); view && view->op->kind == OpKind::kView; view = graph.find_producer(weight)) {
    weight = view->operands[0];
  }
  if (graph.values[weight].kind != ValueKind::kParameter) {
    return false;
  }
  std::vector<bool> is_weight(graph.values.size());
  is_weight[weight] = true;
  for (const Node& node : graph.nodes) {
    const bool reads = std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId v) { return v != kNoValue && is_weight[v]; });
    if (reads && node.op->kind == OpKind::kView) {
      is_weight[node.result(0)] = true;
    } else if (reads && node.op->kind != OpKind::kLibrary) {
      return false;
    }
  }
  return true;
}

void multiply_packing(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  const at::Tensor& a = operands[operands.size() - 2];
  const OptionalTensor bias = operands.size() == 3 ? OptionalTensor(operands[0]) : std::nullopt;
  multiply_in_two(a, pack_matrix(operands.back()), bias, whole_part(a.size(0)), outs[0]);
}

const Packing kPackedMatrix{last_operand, fits_matrix, pack_last, reads_for_rest, unpack_matrix, multiply_packed, key_of_matrix};

std::function<void(void*)> find_unpack(const Packing& packing, const PackedRef& packed, const at::Tensor& form, const void* operand) {
  if (!packing.unpack || !form.is_non_overlapping_and_dense()) {
    return {};
  }
  auto unpack =
      [unpack = packing.unpack, packed, dims = form.sizes().vec(), strides = form.strides().vec(), type = form.options()](void* to) {
        try {
          c10::InferenceMode inference;
          const Untold untold;
          at::from_blob(to, dims, strides, type).copy_(unpack(*packed, dims));
        } catch (...) {
          rethrow_as_step_error("a packed weight", -1);
        }
      };
  const at::Tensor copy = at::empty_strided(form.sizes(), form.strides(), form.options());
  unpack(copy.mutable_data_ptr());
  return std::memcmp(copy.const_data_ptr(), operand, form.nbytes()) == 0 ? unpack : std::function<void(void*)>();
}

} // namespace torch_xla::cpu
