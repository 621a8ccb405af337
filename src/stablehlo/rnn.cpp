// The recurrent layer: a loop over time.
#include "stablehlo/call.h"
#include "stablehlo/structured.h"

namespace torch_xla::stablehlo {
namespace {

struct State {
  Hlo h;
  Hlo c;
};

// The gates stand in the order input, forget, cell, output.
State lstm_step(const Hlo& gates, const Hlo& cell) {
  int64_t n = cell.dim(1);
  auto gate = [&](int64_t k, const char* activation) { return unary(activation, slice_dim(gates, 1, k * n, (k + 1) * n)); };
  Hlo next = gate(1, "logistic") * cell + gate(0, "logistic") * gate(2, "tanh");
  return {gate(3, "logistic") * unary("tanh", next), next};
}

Hlo input_gates(Call& c) {
  Hlo gates = dot(c.computed(0), c.computed(1), {}, {}, {2}, {1});
  for (size_t bias : {3, 4}) {
    gates = c.has(bias) ? gates + c.computed(bias) : gates;
  }
  return c.get_bool(0) ? reverse(gates, {0}) : gates;
}

// Operands input [T, N, C], weights, biases, hx, cx; attributes reverse, ..., hidden size (3).
void write_lstm_layer(Call& c) {
  Hlo gates = input_gates(c);
  Hlo weight = c.computed(2);
  int64_t steps = gates.dim(0);
  Dims one{gates.dim(1), c.get_int(3)};
  Dims all{steps, one[0], one[1]};
  Text& text = c.text();
  Hlo zero = text.constant_int(0, {DType::I32, {}});
  Hlo outputs = text.constant(0, {gates.dtype(), all});
  auto goes_on = [&](const Hlos& v) { return v[0] < static_cast<double>(steps); };
  auto body = [&](const Hlos& v) {
    const Hlo& t = v[0];
    Hlo none = t - t;
    Hlo now = reshape(dynamic_slice(v[4], {t, none, none}, {1, one[0], gates.dim(2)}), {one[0], gates.dim(2)});
    State next = lstm_step(now + dot(v[1], v[5], {}, {}, {1}, {1}), v[2]);
    Hlo out = dynamic_update_slice(v[3], reshape(next.h, {1, one[0], one[1]}), {t, none, none});
    return Hlos{t + 1, next.h, next.c, out, v[4], v[5]};
  };
  Hlos last = while_loop({zero, reshape(c.computed(5), one), reshape(c.computed(6), one), outputs, gates, weight}, goes_on, body);
  c.set(0, c.get_bool(0) ? reverse(last[3], {0}) : last[3]);
  c.set(1, last[1]);
  c.set(2, last[2]);
  c.set(3, text.constant_int(0, c.result_type(3)));
}

constexpr Writer kWriters[] = {
    {"aten::mkldnn_rnn_layer", write_lstm_layer},
};

} // namespace

std::span<const Writer> rnn_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
