// Defines the engine's convolutions. xla::fused_convolution is computed by the operators of torch.compile's frozen graphs, which take
// oneDNN's own tensors.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "engine/cpu/few_rows/direct_convolutions.h"
#include "engine/cpu/library/args.h"
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
  const OptionalTensor bias, mean, variance, scale, shift, added;
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
        added(arguments[7].toOptional<at::Tensor>()),
        stride(arguments[8].toIntVector()),
        padding(arguments[9].toIntVector()),
        dilation(arguments[10].toIntVector()),
        groups(arguments[13].toInt()),
        eps(arguments[14].toDouble()),
        activation(arguments[15]),
        algorithm(arguments[16]) {}
};

// ---- Kernels of our own ----

DType dtype_of(const Convolution& c) {
  return c.input.scalar_type() == at::kFloat ? DType::F32 : DType::BF16;
}

enum class OwnKernel : uint8_t { kNone, kPixels, kChannels };

// Of those that the kernels have.
std::optional<Activation> find_activation(const Convolution& c) {
  const std::string_view name = c.activation.toStringView();
  return name == "none"     ? std::optional(Activation::kNone)
      : name == "relu"      ? std::optional(Activation::kRelu)
      : name == "hardswish" ? std::optional(Activation::kHardswish)
      : name == "swish"     ? std::optional(Activation::kSilu)
                            : std::nullopt;
}

bool is_each(at::IntArrayRef numbers, int64_t wanted) {
  return std::all_of(numbers.begin(), numbers.end(), [wanted](int64_t number) { return number == wanted; });
}

// Of weights of images, without groups.
bool is_by_pixel(DType dtype, at::IntArrayRef weight, at::IntArrayRef stride, at::IntArrayRef padding) {
  const bool is_even = dtype == DType::F32 || weight[1] % 2 == 0;
  return is_even && weight[2] == 1 && weight[3] == 1 && is_each(stride, 1) && is_each(padding, 0) && can_convolve_pixels(dtype);
}

// The kernel that is faster than oneDNN's, from sizes and types.
OwnKernel find_kernel(const Convolution& c) {
  const bool fits = (c.input.scalar_type() == at::kFloat || c.input.scalar_type() == at::kBFloat16) && c.input.dim() == 4 &&
      c.input.numel() > 0 && c.weight.numel() > 0 && c.stride.size() == 2 && c.padding.size() == 2 &&
      c.input.is_contiguous(at::MemoryFormat::ChannelsLast) && is_each(c.dilation, 1) && find_activation(c);
  if (!fits) {
    return OwnKernel::kNone;
  }
  if (c.groups > 1) {
    const bool is_by_channel = can_convolve_channels() && c.groups == c.input.size(1) && c.weight.size(0) == c.groups;
    return is_by_channel ? OwnKernel::kChannels : OwnKernel::kNone;
  }
  return is_by_pixel(dtype_of(c), c.weight.sizes(), c.stride, c.padding) ? OwnKernel::kPixels : OwnKernel::kNone;
}

// A copy without gaps.
at::Tensor copy(const at::Tensor& t) {
  return t.clone(at::MemoryFormat::Contiguous);
}

// As ImageConvolution::weight.
at::Tensor order_weight(const at::Tensor& weight, OwnKernel kernel, c10::ScalarType images) {
  if (kernel == OwnKernel::kChannels) {
    return copy(weight.to(at::kFloat).permute({2, 3, 0, 1}));
  }
  const int64_t pair = images == at::kFloat ? 1 : 2;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : weight.to(images).flatten(1).split(pixel_weight_columns(weight.size(0)))) {
    parts.push_back(part.unflatten(1, {-1, pair}).transpose(0, 1).flatten());
  }
  return at::cat(parts);
}

// The weight of a convolution again, by its number of output channels, in the type of its images.
at::Tensor restore_weight(const at::Tensor& ordered, int64_t out_channels) {
  if (ordered.dim() == 4) {
    return ordered.permute({2, 3, 0, 1});
  }
  const int64_t channels = ordered.numel() / out_channels;
  const int64_t pair = ordered.scalar_type() == at::kFloat ? 1 : 2;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : ordered.split(pixel_weight_columns(out_channels) * channels)) {
    parts.push_back(part.view({channels / pair, -1, pair}).transpose(0, 1).reshape({-1, channels, 1, 1}));
  }
  return at::cat(parts);
}

at::Tensor convolve_by_own(const Convolution& c, const Packed& packed, OwnKernel kernel) {
  auto out_extent = [&](size_t i) {
    const auto dim = static_cast<int64_t>(i) + 2;
    return (c.input.size(dim) + 2 * c.padding[i] - c.weight.size(dim)) / c.stride[i] + 1;
  };
  const std::array<int64_t, 2> out_image{out_extent(0), out_extent(1)};
  const int64_t channels = c.weight.size(0);
  at::Tensor out =
      at::empty({c.input.size(0), channels, out_image[0], out_image[1]}, c.input.options().memory_format(at::MemoryFormat::ChannelsLast));
  const OptionalTensor added = c.added ? OptionalTensor(c.added->contiguous(at::MemoryFormat::ChannelsLast)) : std::nullopt;
  const ImageConvolution call{
      .dtype = dtype_of(c),
      .batch = c.input.size(0),
      .channels = c.input.size(1),
      .out_channels = channels,
      .image = {c.input.size(2), c.input.size(3)},
      .out_image = out_image,
      .kernel = {c.weight.size(2), c.weight.size(3)},
      .stride = {c.stride[0], c.stride[1]},
      .padding = {c.padding[0], c.padding[1]},
      .input = c.input.const_data_ptr(),
      .weight = packed.weight.const_data_ptr(),
      .bias = packed.bias ? packed.bias->const_data_ptr<float>() : nullptr,
      .added = added ? added->const_data_ptr() : nullptr,
      .out = out.mutable_data_ptr(),
      .activation = *find_activation(c)};
  kernel == OwnKernel::kPixels ? convolve_pixels(call) : convolve_channels(call);
  return out;
}

// ---- oneDNN ----

// Weight and bias that give what the batch norm makes of the convolution.
Packed fold(const Convolution& c) {
  OptionalTensor bias = c.bias;
  at::Tensor weight = c.weight;
  if (c.mean) {
    at::Tensor factor = (c.variance->to(at::kFloat) + c.eps).rsqrt();
    factor = c.scale ? factor * *c.scale : factor;
    bias = (c.bias ? c.bias->to(at::kFloat) - *c.mean : -*c.mean) * factor;
    bias = c.shift ? *bias + *c.shift : *bias;
    weight = weight.to(at::kFloat) * factor.view({-1, 1, 1, 1});
  }
  return {weight, bias};
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
  const std::string_view activation = c.activation.toStringView();
  const bool is_relu = activation == "relu"; // oneDNN's makes zeros of NaN
  at::Tensor out = plain.call(
      c.input,
      packed.weight,
      packed.bias,
      c.padding,
      c.stride,
      c.dilation,
      c.groups,
      is_relu ? "none" : activation,
      Numbers(),
      c.algorithm.toStringView());
  out = c.added ? out.add_(*c.added) : out;
  return is_relu ? out.relu_() : out;
}

at::Tensor compute_packed(const torch::jit::Stack& arguments, const Packed& packed, bool /*only*/) {
  const Convolution c(arguments);
  const OwnKernel kernel = find_kernel(c);
  return kernel == OwnKernel::kNone ? convolve(c, packed) : convolve_by_own(c, packed, kernel);
}

// ---- Packing ----

OperandRange weight_to_shift(size_t /*num_operands*/) {
  return {1, 7};
}

bool fits(const CallSpec& /*call*/, const torch::jit::Stack& /*arguments*/) {
  return true;
}

Packed pack(const torch::jit::Stack& arguments) {
  static const auto reorder =
      find_operator<at::Tensor(const at::Tensor&, c10::IntArrayRef, c10::IntArrayRef, c10::IntArrayRef, int64_t, at::OptionalIntArrayRef)>(
          "mkldnn::_reorder_convolution_weight");
  const Convolution c(arguments);
  const c10::ScalarType dtype = c.input.scalar_type();
  Packed packed = fold(c);
  if (const OwnKernel kernel = find_kernel(c); kernel != OwnKernel::kNone) {
    return {order_weight(packed.weight, kernel, dtype), packed.bias ? OptionalTensor(copy(packed.bias->to(at::kFloat))) : std::nullopt};
  }
  packed.bias = packed.bias ? OptionalTensor(packed.bias->to(dtype)) : std::nullopt;
  packed.weight = packed.weight.to(dtype).contiguous(c.input.suggest_memory_format());
  packed.weight = reorder.call(packed.weight, c.padding, c.stride, c.dilation, c.groups, c.input.sizes());
  return packed;
}

// Packed too: the weight as it lies gives other last bits in bfloat16.
void compute(const c10::OperatorHandle& /*op*/, torch::jit::Stack* stack) {
  *stack = {compute_packed(*stack, pack(*stack), true)};
}

// To the last bit where nothing is folded into it.
at::Tensor unpack(const Packed& packed, at::IntArrayRef sizes) {
  return packed.weight.is_mkldnn() ? packed.weight.to_dense() : restore_weight(packed.weight, sizes[0]);
}

} // namespace

const Packing kPackedConvolution{weight_to_shift, fits, pack, nullptr, unpack, compute_packed, key_of_convolution};

void define_convolutions() {
  static auto* library = new torch::Library(torch::Library::FRAGMENT, "xla", std::nullopt, __FILE__, __LINE__); // never destroyed
  auto define = [](const char* schema, const char* name, torch::CppFunction kernel) {
    library->def(schema);
    library->impl(name, c10::DispatchKey::CPU, std::move(kernel));
  };
  define(
      "fused_convolution(Tensor input, Tensor weight, Tensor? bias, Tensor? mean, Tensor? variance, Tensor? scale, Tensor? shift, "
      "Tensor? added, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups, float eps, "
      "str activation, str algorithm) -> Tensor",
      "fused_convolution",
      torch::CppFunction::makeFromBoxedFunction<&compute>());
  define(
      "quantized_convolution(Tensor input, Tensor weight, Tensor? bias, Tensor scale, Tensor? zero, Tensor weight_scales, Tensor? "
      "weight_zeros, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups) -> Tensor",
      "quantized_convolution",
      torch::CppFunction::makeFromBoxedFunction<&convolve_integers>());
}

ConvolutionFusion find_fusion(const Graph& graph, const Node& node) {
  constexpr size_t kTransposed = 3, kGroups = 5;
  if (!is_convolution(*node.op) || std::get<bool>(node.attrs[kTransposed])) {
    return ConvolutionFusion::kNone;
  }
  const Type& input = graph.type(node.operands[0]);
  const Type& weight = graph.type(node.operands[1]);
  const bool is_fast = input.dtype == DType::F32 || (input.dtype == DType::BF16 && can_multiply_by_onednn());
  const bool fuses =
      is_fast && input.dims.size() == 4 && input.numel() > 0 && weight.dtype == input.dtype && at::globalContext().userEnabledMkldnn();
  // A sum of its own reads the image from memory once more, unless the kernel adds while the result is in registers.
  const bool adds = fuses && std::get<int64_t>(node.attrs[kGroups]) == 1 &&
      is_by_pixel(input.dtype, ref(weight.dims), ref(std::get<Dims>(node.attrs[0])), ref(std::get<Dims>(node.attrs[1])));
  return !fuses ? ConvolutionFusion::kNone : adds ? ConvolutionFusion::kSum : ConvolutionFusion::kActivation;
}

} // namespace torch_xla::cpu
