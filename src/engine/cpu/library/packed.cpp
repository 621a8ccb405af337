// Uses the operators of torch.compile's frozen graphs, which take oneDNN's own tensors.
#include "engine/cpu/library/packed.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

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
Packed pack_matrix(const torch::jit::Stack& arguments) {
  constexpr int64_t kRows = 64;
  static const auto reorder = find_operator<at::Tensor(const at::Tensor&, std::optional<int64_t>)>("mkldnn::_reorder_linear_weight");
  return {reorder.call(Product(arguments).b.t(), kRows), std::nullopt};
}

at::Tensor unpack_matrix(const Packed& packed) {
  return packed.weight.to_dense().t();
}

// multiply_by_onednn() cuts those of float32; the rest reads the weight as it was.
int64_t packed_rows(at::ScalarType dtype, int64_t rows) {
  return dtype == at::kFloat ? whole_part(rows) : rows;
}

bool has_rest(const CallSpec& call) {
  const Type& a = call.operands[call.operands.size() - 2].type;
  return packed_rows(scalar_type(a.dtype), a.dims[0]) != a.dims[0];
}

at::Tensor multiply_packed(const torch::jit::Stack& arguments, const Packed& packed) {
  static const auto multiply = find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, const OptionalTensor&, std::string_view, Numbers, std::optional<std::string_view>)>(
      "mkldnn::_linear_pointwise");
  const Product product(arguments);
  const int64_t rows = product.a.size(0);
  const int64_t whole = packed_rows(product.a.scalar_type(), rows);
  if (whole == rows) {
    return multiply.call(product.a, packed.weight, product.bias, "none", Numbers(), "");
  }
  at::Tensor out = at::empty({rows, product.b.size(1)}, product.a.options());
  out.slice(0, 0, whole).copy_(multiply.call(product.a.slice(0, 0, whole), packed.weight, product.bias, "none", Numbers(), ""));
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

const Packing kPackedMatrix{last_operand, fits_matrix, pack_matrix, has_rest, unpack_matrix, multiply_packed, key_of_matrix};

std::function<void(void*)> find_unpack(const Packing& packing, const PackedRef& packed, const at::Tensor& form, const void* operand) {
  if (!packing.unpack || !form.is_non_overlapping_and_dense()) {
    return {};
  }
  auto unpack =
      [unpack = packing.unpack, packed, dims = form.sizes().vec(), strides = form.strides().vec(), type = form.options()](void* to) {
        try {
          c10::InferenceMode inference;
          const Untold untold;
          at::from_blob(to, dims, strides, type).copy_(unpack(*packed));
        } catch (...) {
          rethrow_as_step_error("a packed weight", -1);
        }
      };
  const at::Tensor copy = at::empty_strided(form.sizes(), form.strides(), form.options());
  unpack(copy.mutable_data_ptr());
  return std::memcmp(copy.const_data_ptr(), operand, form.nbytes()) == 0 ? unpack : std::function<void(void*)>();
}

} // namespace torch_xla::cpu
