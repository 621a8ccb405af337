// Recurrent layers: oneDNN's LSTM if it can compute the layer; else cells step by step, with one product for the inputs of all steps.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_thnn_fused_gru_cell.h>
#include <ATen/ops/_thnn_fused_lstm_cell.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gru_cell_native.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_cell_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include "engine/engine.h"
#include "kernels/register.h"
#include "ops/rnn.h"
#include "trace/cell.h"

namespace torch_xla {
namespace {

struct RnnConfig {
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train;
  bool bidirectional;
  bool batch_first;

  size_t directions() const {
    return bidirectional ? 2 : 1;
  }
  size_t weights_each() const {
    return has_biases ? 4 : 2;
  }
};

// One direction of one layer: outputs [T, N, H] and last states (h, or h and c).
struct DirectionResult {
  at::Tensor output;
  std::vector<at::Tensor> states;
};
// Weights: w_ih, w_hh and, with biases, b_ih and b_hh; states: those before the first step.
using Direction =
    DirectionResult (*)(const at::Tensor& input, at::TensorList weights, at::TensorList states, bool reverse, const RnnConfig& config);

// ---- Cells ----

std::optional<at::Tensor> bias(at::TensorList weights, size_t i) {
  return weights.size() > 2 ? std::optional(weights[2 + i]) : std::nullopt;
}

// ATen's fused cells have no forward-mode gradients. torch.func's may lie in the inner values of wrapped tensors.
bool may_have_tangent(at::TensorList tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& t) {
    return t._fw_grad(/*level=*/0).defined() || t.key_set().has(c10::DispatchKey::FuncTorchGradWrapper);
  });
}

at::Tensor add_bias(const at::Tensor& gates, const std::optional<at::Tensor>& bias) {
  return bias ? gates + *bias : gates;
}

std::vector<at::Tensor> lstm_step(const at::Tensor& gates, at::TensorList weights, at::TensorList states) {
  at::Tensor hidden = at::mm(states[0], weights[1].t());
  if (may_have_tangent({gates, hidden, states[1]})) {
    const std::vector<at::Tensor> parts = (add_bias(gates, bias(weights, 0)) + add_bias(hidden, bias(weights, 1))).chunk(4, 1);
    at::Tensor c = parts[1].sigmoid() * states[1] + parts[0].sigmoid() * parts[2].tanh();
    return {parts[3].sigmoid() * c.tanh(), c};
  }
  auto [h, c, workspace] = at::_thnn_fused_lstm_cell(gates, hidden, states[1], bias(weights, 0), bias(weights, 1));
  return {h, c};
}

std::vector<at::Tensor> gru_step(const at::Tensor& gates, at::TensorList weights, at::TensorList states) {
  at::Tensor hidden = at::mm(states[0], weights[1].t());
  if (may_have_tangent({gates, hidden, states[0]})) {
    const std::vector<at::Tensor> x = add_bias(gates, bias(weights, 0)).chunk(3, 1);
    const std::vector<at::Tensor> h = add_bias(hidden, bias(weights, 1)).chunk(3, 1);
    at::Tensor candidate = (x[2] + (x[0] + h[0]).sigmoid() * h[2]).tanh();
    return {candidate + (x[1] + h[1]).sigmoid() * (states[0] - candidate)};
  }
  return {std::get<0>(at::_thnn_fused_gru_cell(gates, hidden, states[0], bias(weights, 0), bias(weights, 1)))};
}

using Step = std::vector<at::Tensor> (*)(const at::Tensor& gates, at::TensorList weights, at::TensorList states);

template <Step kStep>
DirectionResult run_cells(const at::Tensor& input, at::TensorList weights, at::TensorList first, bool reverse, const RnnConfig&) {
  std::vector<at::Tensor> gates = at::matmul(input, weights[0].t()).unbind(0);
  std::vector<at::Tensor> states = first.vec();
  std::vector<at::Tensor> outputs(gates.size());
  for (size_t i = 0; i < gates.size(); ++i) {
    size_t t = reverse ? gates.size() - 1 - i : i;
    states = kStep(gates[t], weights, states);
    outputs[t] = states[0];
  }
  return {at::stack(outputs, 0), states};
}

// ---- oneDNN's layer ----

// Autocast's type for an operand of a product.
c10::ScalarType type_of_products(const at::Tensor& input) {
  bool casts =
      at::autocast::is_autocast_enabled(c10::DeviceType::PrivateUse1) && input.is_floating_point() && input.scalar_type() != at::kDouble;
  return casts ? at::autocast::get_autocast_dtype(c10::DeviceType::PrivateUse1) : input.scalar_type();
}

// Whether ATen's own layers are oneDNN's too: then the values are eager's.
bool can_run_by_onednn(const at::Tensor& input) {
  return engine().runs_lstm_layers(to_dtype(type_of_products(input))) && at::globalContext().userEnabledMkldnn();
}

constexpr int64_t kLstmMode = 2; // oneDNN's number of the cell kind

// `train`: also returns the gradient's inputs.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> call_onednn(
    const at::Tensor& input, at::TensorList weights, at::TensorList states, bool reverse, bool train, const RnnConfig& config) {
  at::Tensor zeros = config.has_biases ? at::Tensor() : at::zeros({weights[0].size(0)}, weights[0].options());
  return at::mkldnn_rnn_layer(
      input,
      weights[0],
      weights[1],
      bias(weights, 0).value_or(zeros),
      bias(weights, 1).value_or(zeros),
      states[0],
      states[1],
      reverse,
      at::IntArrayRef(),
      kLstmMode,
      states[0].size(-1),
      config.num_layers,
      config.has_biases,
      config.bidirectional,
      config.batch_first,
      train);
}

// The bytes of a layer's workspace depend on the processor and oneDNN's version: a layer of zeros on the CPU reveals them.
void ask_for_workspace(const LstmLayer& layer) {
  if (find_workspace(layer)) {
    return;
  }
  c10::AutoGradMode grad_mode(true); // ATen's sign of training
  c10::impl::ExcludeDispatchKeyGuard no_modes(c10::autocast_dispatch_keyset);
  auto zeros = [&](at::IntArrayRef sizes) { return at::zeros(sizes, at::device(at::kCPU).dtype(to_scalar_type(layer.dtype))); };
  at::Tensor state = zeros({1, layer.batch, layer.hidden});
  std::vector<at::Tensor> weights{zeros({4 * layer.hidden, layer.inputs}), zeros({4 * layer.hidden, layer.hidden})};
  RnnConfig config{false, 1, 0, true, false, false};
  at::Tensor input = zeros({layer.steps, layer.batch, layer.inputs});
  note_workspace(layer, std::get<3>(call_onednn(input, weights, {state, state}, false, true, config)).numel());
}

template <bool kTrain>
DirectionResult run_by_onednn(
    const at::Tensor& input, at::TensorList weights, at::TensorList states, bool reverse, const RnnConfig& config) {
  if constexpr (kTrain) {
    ask_for_workspace({to_dtype(type_of_products(input)), input.size(0), input.size(1), input.size(2), states[0].size(-1)});
  }
  auto [output, h, c, workspace] = call_onednn(input, weights, states, reverse, kTrain, config);
  return {output, {h, c}};
}

bool needs_grad(const at::Tensor& input, at::TensorList hx, at::TensorList params) {
  auto any = [](at::TensorList list) {
    return std::any_of(list.begin(), list.end(), [](const at::Tensor& t) { return t.requires_grad(); });
  };
  return c10::GradMode::is_enabled() && (input.requires_grad() || any(hx) || any(params));
}

// ---- Layers ----

// The calls for the layers below: no projection, nothing empty. ATen computes or refuses all others.
bool can_run_layers(const at::Tensor& input, at::TensorList hx, at::TensorList params, const RnnConfig& config) {
  size_t layers = static_cast<size_t>(config.num_layers) * config.directions();
  auto has_batch = [&](const at::Tensor& h) { return h.dim() == 3 && h.size(2) == hx[0].size(2); };
  bool plain = params.size() == config.weights_each() * layers && std::all_of(hx.begin(), hx.end(), has_batch);
  return plain && input.dim() == 3 && input.is_floating_point() && input.numel() > 0;
}

// The outputs, and for each kind of state the last ones of all layers and directions.
std::vector<at::Tensor> run_layers(
    Direction run, const at::Tensor& batch, at::TensorList hx, at::TensorList params, const RnnConfig& config) {
  at::Tensor input = config.batch_first ? batch.transpose(0, 1) : batch;
  std::vector<std::vector<at::Tensor>> last(hx.size());
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    std::vector<at::Tensor> outputs;
    for (size_t direction = 0; direction < config.directions(); ++direction) {
      size_t index = static_cast<size_t>(layer) * config.directions() + direction;
      std::vector<at::Tensor> first;
      for (const at::Tensor& states : hx) {
        first.push_back(states.select(0, static_cast<int64_t>(index)));
      }
      DirectionResult result = run(input, params.slice(index * config.weights_each(), config.weights_each()), first, direction > 0, config);
      outputs.push_back(result.output);
      for (size_t i = 0; i < hx.size(); ++i) {
        last[i].push_back(result.states[i]);
      }
    }
    input = outputs.size() == 1 ? outputs[0] : at::cat(outputs, -1);
    if (config.dropout > 0 && config.train && layer + 1 < config.num_layers) {
      input = at::dropout(input, config.dropout, true);
    }
  }
  std::vector<at::Tensor> results{config.batch_first ? input.transpose(0, 1) : input};
  for (const std::vector<at::Tensor>& states : last) {
    results.push_back(at::stack(states, 0));
  }
  return results;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(
    const at::Tensor& input,
    at::TensorList hx,
    at::TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  RnnConfig config{has_biases, num_layers, dropout, train, bidirectional, batch_first};
  if (hx.size() != 2 || !can_run_layers(input, hx, params, config)) {
    return at::native::lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  }
  Direction run = run_cells<lstm_step>;
  if (can_run_by_onednn(input) && !needs_grad(input, hx, params)) {
    run = run_by_onednn<false>;
  } else if (can_run_by_onednn(input) && engine().runs_library_calls()) { // the gradients have no form for plugins
    run = run_by_onednn<true>;
  }
  auto results = run_layers(run, input, hx, params, config);
  return {results[0], results[1], results[2]};
}

std::tuple<at::Tensor, at::Tensor> gru(
    const at::Tensor& input,
    const at::Tensor& hx,
    at::TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  RnnConfig config{has_biases, num_layers, dropout, train, bidirectional, batch_first};
  if (!can_run_layers(input, hx, params, config)) {
    return at::native::gru(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  }
  auto results = run_layers(run_cells<gru_step>, input, hx, params, config);
  return {results[0], results[1]};
}

// ---- One step ----

using OptionalTensor = std::optional<at::Tensor>;

// Without biases if one is missing, as in ATen.
std::vector<at::Tensor> cell_weights(
    const at::Tensor& w_ih, const at::Tensor& w_hh, const OptionalTensor& b_ih, const OptionalTensor& b_hh) {
  const bool has_biases = b_ih && b_ih->defined() && b_hh && b_hh->defined();
  return has_biases ? std::vector<at::Tensor>{w_ih, w_hh, *b_ih, *b_hh} : std::vector<at::Tensor>{w_ih, w_hh};
}

at::Tensor gru_cell(
    const at::Tensor& input,
    const at::Tensor& hx,
    const at::Tensor& w_ih,
    const at::Tensor& w_hh,
    const OptionalTensor& b_ih,
    const OptionalTensor& b_hh) {
  if (!may_have_tangent({input, hx, w_ih, w_hh})) {
    return at::native::gru_cell(input, hx, w_ih, w_hh, b_ih, b_hh);
  }
  return gru_step(at::mm(input, w_ih.t()), cell_weights(w_ih, w_hh, b_ih, b_hh), hx)[0];
}

std::tuple<at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input,
    at::TensorList hx,
    const at::Tensor& w_ih,
    const at::Tensor& w_hh,
    const OptionalTensor& b_ih,
    const OptionalTensor& b_hh) {
  if (hx.size() != 2 || !may_have_tangent({input, hx[0], hx[1], w_ih, w_hh})) {
    return at::native::lstm_cell(input, hx, w_ih, w_hh, b_ih, b_hh);
  }
  std::vector<at::Tensor> states = lstm_step(at::mm(input, w_ih.t()), cell_weights(w_ih, w_hh, b_ih, b_hh), hx);
  return {states[0], states[1]};
}

} // namespace

void register_rnn(torch::Library& m) {
  m.impl("lstm.input", TORCH_FN(lstm));
  m.impl("gru.input", TORCH_FN(gru));
  m.impl("gru_cell", TORCH_FN(gru_cell));
  m.impl("lstm_cell", TORCH_FN(lstm_cell));
}

} // namespace torch_xla
