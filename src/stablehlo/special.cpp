// Special functions, reinterpreted bytes, checks, and the recurrent layer.
#include "stablehlo/call.h"
#include "stablehlo/structured.h"

namespace torch_xla::stablehlo {
namespace {

// ---- Special functions ----

constexpr char kErfInv[] = "chlo.erf_inv";
constexpr char kLgamma[] = "chlo.lgamma";
constexpr char kDigamma[] = "chlo.digamma";

template <const char* Name>
void write_function(Call& c) {
  c.set(0, unary(Name, c.computed(0)));
}

constexpr int kTerms = 40; // of both series of i0, for double precision
constexpr double kLarge = 20;

// The power series, whose terms are all positive: sum of (x^2/4)^k / k!^2.
Hlo small_i0(const Hlo& x) {
  Hlo t = x * x / 4;
  Hlo sum = constant_like(x, 1);
  for (int k = kTerms; k > 0; --k) {
    sum = sum * (t / (static_cast<double>(k) * k)) + 1;
  }
  return sum;
}

// The asymptotic series times e^x / sqrt(2 pi x); the exponential in two halves, as i0 is smaller than it.
Hlo large_i0(const Hlo& x) {
  constexpr double kTwoPi = 6.28318530717958647693;
  Hlo sum = constant_like(x, 1);
  for (int k = kTerms / 2; k > 0; --k) {
    double odd = 2.0 * k - 1;
    sum = sum * (odd * odd / (8.0 * k) / x) + 1;
  }
  Hlo root = unary("exponential", x / 2);
  return root / unary("sqrt", x * kTwoPi) * sum * root;
}

void write_i0(Call& c) {
  Hlo x = unary("abs", c.computed(0));
  Hlo is_large = x > kLarge;
  Hlo large = select(is_large, x, kLarge);
  c.set(0, select(is_large, large_i0(large), small_i0(select(is_large, constant_like(x, 0), x))));
}

// ---- view_copy.dtype ----

Hlo bit_cast(Hlo x, const Type& type) {
  return x.text().op("bitcast_convert", {x}, {}, type);
}

// Bool is one bit there: it goes by way of U8.
void write_reinterpret(Call& c) {
  Type to = c.result_type(0);
  Hlo x = c[0].dtype() == DType::Bool ? convert(c[0], DType::U8) : c[0];
  bool to_bool = to.dtype == DType::Bool;
  to.dtype = to_bool ? DType::U8 : to.dtype;
  auto from_size = static_cast<int64_t>(item_size(x.dtype()));
  auto to_size = static_cast<int64_t>(item_size(to.dtype));
  Dims dims = x.dims();
  if (from_size < to_size) { // several elements make one
    dims.back() = to.dims.back();
    dims.push_back(to_size / from_size);
    x = bit_cast(reshape(x, dims), to);
  } else {
    if (from_size > to_size) {
      dims.push_back(from_size / to_size);
    }
    x = x.dtype() == to.dtype ? x : bit_cast(x, {to.dtype, dims});
  }
  c.set(0, x);
}

// ---- mkldnn_rnn_layer: operands input [T, N, C], weights, biases, hx, cx; attributes reverse, ..., hidden size (3) ----

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

// No program of a plugin can raise.
void write_assert(Call& c) {
  c.set(0, c[1]);
}

constexpr Writer kWriters[] = {
    {"aten::erfinv", write_function<kErfInv>},
    {"aten::lgamma", write_function<kLgamma>},
    {"aten::digamma", write_function<kDigamma>},
    {"aten::i0", write_i0},
    {"aten::view_copy.dtype", write_reinterpret},
    {"aten::_functional_assert_async.msg", write_assert},
    {"aten::mkldnn_rnn_layer", write_lstm_layer},
};

} // namespace

std::span<const Writer> special_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
