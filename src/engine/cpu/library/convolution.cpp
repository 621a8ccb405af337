// Defines the engine's convolutions. xla::fused_convolution is computed by the operators of torch.compile's frozen graphs, which take
// oneDNN's own tensors.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include "engine/cpu/library/packed.h"
#include "engine/cpu/library/products.h"
#include "engine/cpu/library/quantized.h"
#include "ops/tables.h"

namespace torch_xla::cpu {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Numbers = c10::List<std::optional<at::Scalar>>;

struct Convolution {
  const at::Tensor input, weight;
  const OptionalTensor bias, mean, variance, scale, shift;
  const std::vector<int64_t> stride, padding, dilation;
  const int64_t groups;
  const double eps;
  const c10::IValue activation, algorithm; // texts

  explicit Convolution(const torch::jit::Stack& arguments)
      : input(arguments[0].toTensor()),
        weight(arguments[1].toTensor()),
        bias(arguments[2].toOptional<at::Tensor>()),
        mean(arguments[3].toOptional<at::Tensor>()),
        variance(arguments[4].toOptional<at::Tensor>()),
        scale(arguments[5].toOptional<at::Tensor>()),
        shift(arguments[6].toOptional<at::Tensor>()),
        stride(arguments[7].toIntVector()),
        padding(arguments[8].toIntVector()),
        dilation(arguments[9].toIntVector()),
        groups(arguments[12].toInt()),
        eps(arguments[13].toDouble()),
        activation(arguments[14]),
        algorithm(arguments[15]) {}
};

// Weight and bias that give what the batch norm makes of the convolution, in the type of the images.
Packed fold(const Convolution& c) {
  const c10::ScalarType dtype = c.input.scalar_type();
  OptionalTensor bias = c.bias;
  at::Tensor weight = c.weight;
  if (c.mean) {
    at::Tensor factor = (c.variance->to(at::kFloat) + c.eps).rsqrt();
    factor = c.scale ? factor * *c.scale : factor;
    bias = (c.bias ? c.bias->to(at::kFloat) - *c.mean : -*c.mean) * factor;
    bias = c.shift ? *bias + *c.shift : *bias;
    weight = weight.to(at::kFloat) * factor.view({-1, 1, 1, 1});
  }
  return {weight.to(dtype), bias ? OptionalTensor(bias->to(dtype)) : std::nullopt};
}

at::Tensor convolve(const Convolution& c, const Packed& packed) {
  using Convolve = at::Tensor(
      const at::Tensor&,
      const at::Tensor&,
      const OptionalTensor&,
      c10::IntArrayRef,
      c10::IntArrayRef,
      c10::IntArrayRef,
      int64_t,
      std::string_view,
      Numbers,
      std::optional<std::string_view>);
  static const auto plain = find_operator<Convolve>("mkldnn::_convolution_pointwise");
  return plain.call(
      c.input,
      packed.weight,
      packed.bias,
      c.padding,
      c.stride,
      c.dilation,
      c.groups,
      c.activation.toStringView(),
      Numbers(),
      c.algorithm.toStringView());
}

at::Tensor compute_packed(const torch::jit::Stack& arguments, const Packed& packed, bool /*only*/) {
  return convolve(Convolution(arguments), packed);
}

// ---- Packing ----

OperandRange operands_but_images(size_t num_operands) {
  return {1, static_cast<int32_t>(num_operands)};
}

bool fits(const CallSpec& /*call*/, const torch::jit::Stack& /*arguments*/) {
  return true;
}

Packed pack(const torch::jit::Stack& arguments) {
  static const auto reorder =
      find_operator<at::Tensor(const at::Tensor&, c10::IntArrayRef, c10::IntArrayRef, c10::IntArrayRef, int64_t, at::OptionalIntArrayRef)>(
          "mkldnn::_reorder_convolution_weight");
  const Convolution c(arguments);
  Packed packed = fold(c);
  packed.weight = packed.weight.contiguous(c.input.suggest_memory_format());
  packed.weight = reorder.call(packed.weight, c.padding, c.stride, c.dilation, c.groups, c.input.sizes());
  return packed;
}

// Packed too: the weight as it lies gives other last bits in bfloat16.
void compute(const c10::OperatorHandle& /*op*/, torch::jit::Stack* stack) {
  *stack = {compute_packed(*stack, pack(*stack), true)};
}

// To the last bit where nothing is folded into it.
at::Tensor unpack(const Packed& packed) {
  return packed.weight.to_dense();
}

} // namespace

const Packing kPackedConvolution{operands_but_images, fits, pack, nullptr, unpack, compute_packed, key_of_convolution};

void define_convolutions() {
  static auto* library = new torch::Library(torch::Library::FRAGMENT, "xla", std::nullopt, __FILE__, __LINE__); // never destroyed
  auto define = [](const char* schema, const char* name, torch::CppFunction kernel) {
    library->def(schema);
    library->impl(name, c10::DispatchKey::CPU, std::move(kernel));
  };
  define(
      "fused_convolution(Tensor input, Tensor weight, Tensor? bias, Tensor? mean, Tensor? variance, Tensor? scale, Tensor? shift, "
      "int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups, float eps, "
      "str activation, str algorithm) -> Tensor",
      "fused_convolution",
      torch::CppFunction::makeFromBoxedFunction<&compute>());
  define(
      "quantized_convolution(Tensor input, Tensor weight, Tensor? bias, Tensor scale, Tensor? zero, Tensor weight_scales, Tensor? "
      "weight_zeros, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups) -> Tensor",
      "quantized_convolution",
      torch::CppFunction::makeFromBoxedFunction<&convolve_integers>());
}

bool convolves_by_onednn(const Graph& graph, const Node& node) {
  constexpr size_t kTransposed = 3;
  if (!is_convolution(*node.op) || std::get<bool>(node.attrs[kTransposed])) {
    return false;
  }
  const Type& input = graph.type(node.operands[0]);
  const bool is_fast = input.dtype == DType::F32 || (input.dtype == DType::BF16 && can_multiply_by_onednn());
  return is_fast && input.dims.size() == 4 && input.numel() > 0 && graph.type(node.operands[1]).dtype == input.dtype &&
      at::globalContext().userEnabledMkldnn();
}

} // namespace torch_xla::cpu
