// Uses the operators of torch.compile's frozen graphs, which take oneDNN's own tensors.
#include "engine/cpu/library/packed.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution.h>

#include <optional>

#include "engine/cpu/cost.h"
#include "engine/cpu/library/products.h"

namespace torch_xla::cpu {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Numbers = c10::List<std::optional<at::Scalar>>;

template <typename Signature>
c10::TypedOperatorHandle<Signature> find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

void add(Hash128& hash, const CallSpec::Tensor& t) {
  hash.add(static_cast<uint64_t>(t.type.dtype));
  for (const Dims* numbers : {&t.type.dims, &t.strides}) {
    hash.add_bytes(numbers->begin(), numbers->size() * sizeof(int64_t));
  }
}

// ---- Products ----

int32_t last_operand(size_t num_operands) {
  return static_cast<int32_t>(num_operands) - 1;
}

// ATen itself gives 16-bit products, except tiny ones, to oneDNN.
bool is_product_by_onednn(const CallSpec& call) {
  const bool is_bf16 = call.operands.back().type.dtype == DType::BF16;
  const bool fits =
      is_bf16 ? can_multiply_by_onednn() && at::globalContext().userEnabledMkldnn() : prefers_onednn(call) && is_whole_for_onednn(call);
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
at::Tensor pack_matrix(const torch::jit::Stack& arguments) {
  constexpr int64_t kRows = 64;
  static const auto reorder = find<at::Tensor(const at::Tensor&, std::optional<int64_t>)>("mkldnn::_reorder_linear_weight");
  return reorder.call(Product(arguments).b.t(), kRows);
}

at::Tensor multiply_packed(const torch::jit::Stack& arguments, const at::Tensor& packed) {
  static const auto multiply = find<at::Tensor(
      const at::Tensor&, const at::Tensor&, const OptionalTensor&, std::string_view, Numbers, std::optional<std::string_view>)>(
      "mkldnn::_linear_pointwise");
  const Product product(arguments);
  return multiply.call(product.a, packed, product.bias, "none", Numbers(), "");
}

Hash128 key_of_matrix(const CallSpec& call) {
  Hash128 hash;
  add(hash, call.operands.back());
  return hash;
}

// ---- Convolutions ----

int32_t second_operand(size_t /*num_operands*/) {
  return 1;
}

// The arguments of aten::convolution.
struct Convolution {
  const at::Tensor input, weight;
  const OptionalTensor bias;
  const std::vector<int64_t> stride, padding, dilation;
  const bool transposed;
  const std::vector<int64_t> output_padding;
  const int64_t groups;

  explicit Convolution(const torch::jit::Stack& arguments)
      : input(arguments[0].toTensor()),
        weight(arguments[1].toTensor()),
        bias(arguments[2].toOptional<at::Tensor>()),
        stride(arguments[3].toIntVector()),
        padding(arguments[4].toIntVector()),
        dilation(arguments[5].toIntVector()),
        transposed(arguments[6].toBool()),
        output_padding(arguments[7].toIntVector()),
        groups(arguments[8].toInt()) {}
};

at::native::ConvBackend backend_of(const Convolution& c) {
  auto symbolic = [](const std::vector<int64_t>& numbers) { return c10::fromIntArrayRefSlow(numbers); };
  return at::native::select_conv_backend(
      c.input,
      c.weight,
      c.bias,
      symbolic(c.stride),
      symbolic(c.padding),
      symbolic(c.dilation),
      c.transposed,
      symbolic(c.output_padding),
      c.groups,
      std::nullopt);
}

bool is_channels_last(const at::Tensor& t) {
  return t.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
}

// With a row-major input packing gains nothing.
bool fits_weight(const CallSpec& call, const torch::jit::Stack& arguments) {
  const Convolution c(arguments);
  if (call.operands[1].type.nbytes() < kLeastKeptBytes || c.input.dim() != 4 || c.input.numel() == 0 || !is_channels_last(c.input)) {
    return false;
  }
  const auto backend = backend_of(c);
  return backend == at::native::ConvBackend::Mkldnn || (backend == at::native::ConvBackend::Slow2d && !is_channels_last(c.weight));
}

// For ATen's own kernel in channels-last order: otherwise each call copies the weight to it.
at::Tensor pack_weight(const torch::jit::Stack& arguments) {
  static const auto reorder =
      find<at::Tensor(const at::Tensor&, c10::IntArrayRef, c10::IntArrayRef, c10::IntArrayRef, int64_t, at::OptionalIntArrayRef)>(
          "mkldnn::_reorder_convolution_weight");
  const Convolution c(arguments);
  if (backend_of(c) != at::native::ConvBackend::Mkldnn) {
    return c.weight.clone(at::MemoryFormat::ChannelsLast);
  }
  return reorder.call(c.weight, c.padding, c.stride, c.dilation, c.groups, c.input.sizes());
}

at::Tensor convolve_packed(const torch::jit::Stack& arguments, const at::Tensor& packed) {
  static const auto convolve = find<at::Tensor(
      const at::Tensor&,
      const at::Tensor&,
      const OptionalTensor&,
      c10::IntArrayRef,
      c10::IntArrayRef,
      c10::IntArrayRef,
      int64_t,
      std::string_view,
      Numbers,
      std::optional<std::string_view>)>("mkldnn::_convolution_pointwise");
  const Convolution c(arguments);
  if (!packed.is_mkldnn()) {
    return at::convolution(c.input, packed, c.bias, c.stride, c.padding, c.dilation, c.transposed, c.output_padding, c.groups);
  }
  return convolve.call(c.input, packed, c.bias, c.padding, c.stride, c.dilation, c.groups, "none", Numbers(), "");
}

// The order depends on the images' sizes too.
Hash128 key_of_weight(const CallSpec& call) {
  Hash128 hash;
  for (const Attr& attr : call.attrs) {
    hash_attr(attr, hash);
  }
  add(hash, call.operands[0]);
  add(hash, call.operands[1]);
  return hash;
}

} // namespace

const Packing kPackedMatrix{last_operand, fits_matrix, pack_matrix, multiply_packed, key_of_matrix};
const Packing kPackedWeight{second_operand, fits_weight, pack_weight, convolve_packed, key_of_weight};

} // namespace torch_xla::cpu
