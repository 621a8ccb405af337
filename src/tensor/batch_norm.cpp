// Calls that write more than they return or choose among rows: batch norm's running statistics, attention, LSTM.
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <limits>

#include "ir/builder.h"
#include "tensor/basic.h"
#include "tensor/errors.h"
#include "tensor/recorder.h"
#include "tensor/rows.h"

namespace torch_xla {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

ValueId read_optional(Recording& recording, const OptionalTensor& t) {
  return t && t->defined() ? recording.read_operand(*t) : kNoValue;
}

Dims like_memory_format(const at::Tensor& input, const Type& type) {
  return input.sizes() == to_ref(type.dims) && !input.is_contiguous() && input.is_non_overlapping_and_dense() ? to_dims(input.strides())
                                                                                                              : Dims();
}

// By the overload whose schema says that it writes the running statistics, where there are some.
std::tuple<at::Tensor, at::Tensor, at::Tensor> fallback_batch_norm(torch::jit::Stack stack, const std::string& reason) {
  bool running = !stack[3].isNone() && !stack[4].isNone();
  const char* name = running ? "aten::_native_batch_norm_legit" : "aten::native_batch_norm";
  run_fallback(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""), &stack, reason);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

// The row returns the new running statistics as two further results.
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm(
    const at::Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    bool training,
    double momentum,
    double eps) {
  static const Op& op = get_op("aten::native_batch_norm");
  static metrics::Counter& count = metrics::find_or_create_counter("xla::native_batch_norm");
  try {
    if (!is_native_tensor(input)) {
      throw UserError(ErrorKind::NotImplemented, "no rows for this dtype");
    }
    Recording recording;
    InlineVec<ValueId, 4> operands{
        recording.read(input),
        read_optional(recording, weight),
        read_optional(recording, bias),
        read_optional(recording, running_mean),
        read_optional(recording, running_var)};
    Attrs attrs{training, momentum, eps};
    InferContext context(recorder().trace.graph(), std::span(operands.begin(), operands.size()), attrs);
    op.infer(context);
    std::vector<Type> types = context.results();
    ValueId first = recording.node(op, operands, std::move(attrs), types);
    count.add();
    if (training && running_mean && running_mean->defined()) {
      recording.write_converted(*running_mean, first + 3);
      recording.write_converted(*running_var, first + 4);
    }
    return {recording.wrap(first, like_memory_format(input, types[0])), recording.wrap(first + 1), recording.wrap(first + 2)};
  } catch (const UserError& error) {
    if (error.kind() != ErrorKind::NotImplemented) {
      throw_as_torch_error(error);
    }
    return fallback_batch_norm({input, weight, bias, running_mean, running_var, training, momentum, eps}, error.what());
  }
}

bool is_float(const at::Tensor& t) {
  return torch_xla::is_float(to_dtype(t.scalar_type()));
}

// The conditions of ATen's flash attention for the CPU.
bool can_flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptionalTensor& mask, double dropout) {
  bool four = q.dim() == 4 && k.dim() == 4 && v.dim() == 4;
  if (!four || dropout != 0 || !is_float(q) || q.scalar_type() != k.scalar_type() || q.scalar_type() != v.scalar_type()) {
    return false;
  }
  bool sizes = q.size(0) == k.size(0) && q.size(0) == v.size(0) && q.size(1) == k.size(1) && q.size(1) == v.size(1) &&
      q.size(3) == k.size(3) && q.size(3) == v.size(3) && k.size(2) == v.size(2) && q.numel() > 0 && k.numel() > 0;
  bool mask_fits = !mask || !mask->defined() || (!mask->requires_grad() && (mask->dim() == 2 || mask->dim() == 4));
  return sizes && mask_fits && q.stride(3) == 1 && k.stride(3) == 1 && v.stride(3) == 1;
}

OptionalTensor additive_mask(const OptionalTensor& mask, const at::Tensor& query) {
  if (!mask || !mask->defined() || mask->scalar_type() != c10::ScalarType::Bool) {
    return mask;
  }
  at::Tensor zero = at::zeros({}, query.options());
  return at::where(*mask, zero, zero.add(-std::numeric_limits<double>::infinity()));
}

at::Tensor scaled_dot_product_attention(
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const OptionalTensor& mask,
    double dropout,
    bool causal,
    std::optional<double> scale,
    bool gqa) {
  if (!gqa && can_flash(q, k, v, mask, dropout)) {
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal, additive_mask(mask, q), scale));
  }
  return std::get<0>(at::_scaled_dot_product_attention_math(q, k, v, mask, dropout, causal, {}, scale, gqa));
}

struct LstmConfig {
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train;
  bool bidirectional;
  bool batch_first;
};

constexpr int64_t kLstmMode = 2; // oneDNN's number of the cell kind

using LstmResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// One direction of one layer, as one node.
LstmResult lstm_direction(
    const at::Tensor& input, at::TensorList weights, const at::Tensor& hx, const at::Tensor& cx, bool reverse, const LstmConfig& config) {
  at::Tensor bias_ih = config.has_biases ? weights[2] : at::zeros({weights[0].size(0)}, weights[0].options());
  at::Tensor bias_hh = config.has_biases ? weights[3] : bias_ih;
  auto results = at::mkldnn_rnn_layer(
      input,
      weights[0],
      weights[1],
      bias_ih,
      bias_hh,
      hx,
      cx,
      reverse,
      at::IntArrayRef(),
      kLstmMode,
      hx.size(-1),
      config.num_layers,
      config.has_biases,
      config.bidirectional,
      config.batch_first,
      /*train=*/false);
  return {std::get<0>(results), std::get<1>(results), std::get<2>(results)};
}

LstmResult run_layers(at::Tensor input, at::TensorList hx, at::TensorList params, const LstmConfig& config) {
  int64_t directions = config.bidirectional ? 2 : 1;
  auto stride = static_cast<size_t>(config.has_biases ? 4 : 2);
  std::vector<at::Tensor> last_h;
  std::vector<at::Tensor> last_c;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    std::vector<at::Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      int64_t index = layer * directions + direction;
      auto [output, h, c] = lstm_direction(
          input,
          params.slice(static_cast<size_t>(index) * stride, stride),
          hx[0].select(0, index),
          hx[1].select(0, index),
          direction > 0,
          config);
      outputs.push_back(output);
      last_h.push_back(h);
      last_c.push_back(c);
    }
    input = directions == 1 ? outputs[0] : at::cat(outputs, -1);
    if (config.dropout > 0 && config.train && layer + 1 < config.num_layers) {
      input = at::dropout(input, config.dropout, true);
    }
  }
  return {input, at::stack(last_h, 0), at::stack(last_c, 0)};
}

bool needs_grad(const at::Tensor& input, at::TensorList hx, at::TensorList params) {
  auto any = [](at::TensorList list) {
    return std::any_of(list.begin(), list.end(), [](const at::Tensor& t) { return t.requires_grad(); });
  };
  return c10::GradMode::is_enabled() && (input.requires_grad() || any(hx) || any(params));
}

// oneDNN's layer handles float32 LSTMs without projection; all others, and training, are recorded cell by cell.
bool can_run_layers(const at::Tensor& input, at::TensorList hx, at::TensorList params, const LstmConfig& config) {
  size_t per_layer = config.has_biases ? 4 : 2;
  size_t layers = static_cast<size_t>(config.num_layers) * (config.bidirectional ? 2 : 1);
  bool plain = !needs_grad(input, hx, params) && hx.size() == 2 && params.size() == per_layer * layers && hx[0].size(2) == hx[1].size(2);
  return plain && input.dim() == 3 && input.scalar_type() == c10::ScalarType::Float && input.numel() > 0;
}

LstmResult lstm(
    const at::Tensor& input,
    at::TensorList hx,
    at::TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  LstmConfig config{has_biases, num_layers, dropout, train, bidirectional, batch_first};
  if (!can_run_layers(input, hx, params, config)) {
    return at::native::lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  }
  auto [output, h, c] = run_layers(batch_first ? input.transpose(0, 1) : input, hx, params, config);
  return {batch_first ? output.transpose(0, 1) : output, h, c};
}

} // namespace

void register_special_kernels(torch::Library& m) {
  m.impl("native_batch_norm", TORCH_FN(native_batch_norm));
  m.impl("scaled_dot_product_attention", TORCH_FN(scaled_dot_product_attention));
  m.impl("lstm.input", TORCH_FN(lstm));
}

// These compose differentiable rows themselves, so that autograd sees the parts.
void register_composite_autograd(torch::Library& m) {
  m.impl("scaled_dot_product_attention", TORCH_FN(scaled_dot_product_attention));
  m.impl("lstm.input", TORCH_FN(lstm));
}

} // namespace torch_xla
