// Recurrent layers: one direction of one LSTM layer as one library call, and the cells of LSTM and GRU.
#include "ops/rnn.h"

#include "core/errors.h"
#include "core/hash.h"
#include "core/remembered.h"
#include "ops/math.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// Keeps the workspace bytes of this many layers.
Remembered<int64_t>& workspaces() {
  static auto* sizes = new Remembered<int64_t>(8192); // never destroyed
  return *sizes;
}

Hash128 hash_of(const LstmLayer& layer) {
  Hash128 hash;
  hash.add(static_cast<uint64_t>(layer.dtype));
  for (int64_t size : {layer.steps, layer.batch, layer.inputs, layer.hidden}) {
    hash.add(static_cast<uint64_t>(size));
  }
  return hash;
}

// Operands: input [T, N, C], four weights, hx, cx. Attributes: reverse, batch_sizes, mode, hidden_size, num_layers, has_biases,
// bidirectional, batch_first, train. Results: output, hy, cy, workspace.
void infer_layer(InferContext& c) {
  constexpr int64_t kLstm = 2; // the only kind of cell that ATen's layer has
  XLA_CHECK(c.get_int(2) == kLstm, "mkldnn_rnn_layer computes LSTMs only: expected mode 2, got ", c.get_int(2));
  require_float(c, 0);
  require_rank(c, 0, 3, "the input of a recurrent layer must be 3D");
  Type input = c.operand(0);
  for (size_t weight : {1, 2}) {
    Dims wanted{4 * c.get_int(3), weight == 1 ? input.dims[2] : c.get_int(3)};
    const Dims& given = c.operand(weight).dims;
    XLA_CHECK(
        given == wanted,
        "expected weights of ",
        sizes_text(wanted),
        " for an input of ",
        sizes_text(input.dims),
        ", but got ",
        sizes_text(given));
  }
  std::optional<int64_t> workspace = 0;
  if (c.get_bool(8)) {
    workspace = find_workspace({input.dtype, input.dims[0], input.dims[1], input.dims[2], c.get_int(3)});
  }
  if (!workspace) {
    fall_back("the workspace of a training layer has a size that only oneDNN knows");
  }
  c.add_result(input.dtype, {input.dims[0], input.dims[1], c.get_int(3)});
  c.add_result(input.dtype, c.operand(5).dims);
  c.add_result(input.dtype, c.operand(6).dims);
  c.add_result(DType::U8, {*workspace});
}

// Operands: input_gates [N, 4H], hidden_gates [N, 4H], cx [N, H], input_bias [4H]?, hidden_bias [4H]?. Results: hy, cy, workspace (the
// activated gates i, f, g, o).
void infer_cell(InferContext& c) {
  require_float(c, 0);
  Type gates = c.operand(0);
  Type cell = c.operand(2);
  c.add_result(cell.dtype, cell.dims);
  c.add_result(cell.dtype, cell.dims);
  c.add_result(gates.dtype, gates.dims);
}

// Columns [k * H, (k + 1) * H) of a [N, gates * H] value.
Ex gate(Ex gates, int64_t k, int64_t hidden) {
  Dims dims = gates.type().dims;
  Dims strides = contiguous_strides(dims);
  return {&gates.b(), gates.b().view(gates.id(), strides, {dims[0], hidden}, strides, k * hidden)};
}

void expand_cell(ExpandContext& c) {
  Ex sum = c.computed(0) + c.computed(1);
  for (size_t bias : {3, 4}) {
    sum = c.has(bias) ? sum + c.computed(bias) : sum;
  }
  const Dims& dims = sum.type().dims;
  Ex column{&c.b(), c.b().iota(dims, 1, DType::I64)};
  int64_t hidden = dims[1] / 4;
  auto edge = static_cast<double>(hidden);
  Ex gates = select((column >= 2 * edge) & (column < 3 * edge), tanh(sum), logistic(sum));
  Ex cy = gate(gates, 1, hidden) * c.computed(2) + gate(gates, 0, hidden) * gate(gates, 2, hidden);
  c.set(0, gate(gates, 3, hidden) * tanh(cy));
  c.set(1, cy);
  c.set(2, gates);
}

// Operands: grad_hy?, grad_cy?, cx, cy, workspace. Attribute: has_bias. Results: grad_gates [N, 4H], grad_cx, grad_bias [4H].
void infer_cell_backward(InferContext& c) {
  Type workspace = c.operand(4);
  Type cell = c.operand(2);
  c.add_result(workspace.dtype, workspace.dims);
  c.add_result(cell.dtype, cell.dims);
  if (c.get_bool(0)) {
    c.add_result(workspace.dtype, {workspace.dims[1]});
  } else {
    c.add_undefined();
  }
}

// [N, H] values side by side.
Ex concatenate(std::initializer_list<Ex> parts) {
  std::vector<ValueId> operands;
  for (Ex part : parts) {
    operands.push_back(part.id());
  }
  Builder& b = parts.begin()->b();
  Type result = parts.begin()->type();
  auto count = static_cast<int64_t>(parts.size());
  result.dims[1] *= count;
  return {&b, b.library(get_op("aten::cat"), operands, {count, int64_t{1}}, {&result, 1})};
}

void expand_cell_backward(ExpandContext& c) {
  Ex gates = c.computed(4);
  int64_t hidden = gates.type().dims[1] / 4;
  Ex i = gate(gates, 0, hidden);
  Ex f = gate(gates, 1, hidden);
  Ex g = gate(gates, 2, hidden);
  Ex o = gate(gates, 3, hidden);
  Ex t = tanh(c.computed(3));
  Ex zero = t * 0.0;
  Ex grad_h = c.has(0) ? c.computed(0) : zero;
  Ex grad_c = grad_h * o * (1.0 - t * t) + (c.has(1) ? c.computed(1) : zero);
  Ex grad_gates = concatenate(
      {grad_c * g * i * (1.0 - i), grad_c * c.computed(2) * f * (1.0 - f), grad_c * i * (1.0 - g * g), grad_h * t * o * (1.0 - o)});
  c.set(0, grad_gates);
  c.set(1, grad_c * f);
  if (c.get_bool(0)) {
    c.set(2, grad_gates.reduce(Prim::kReduceSum, {0}));
  }
}

// Operands: input_gates [N, 3H], hidden_gates [N, 3H], hx [N, H], input_bias [3H]?, hidden_bias [3H]?. Results: hy, workspace [N, 5H]: the
// activated gates r, z, n, then hx and the hidden part of n.
void infer_gru_cell(InferContext& c) {
  require_float(c, 0);
  Type gates = c.operand(0);
  Type state = c.operand(2);
  XLA_CHECK(
      gates.dims.size() == 2 && gates == c.operand(1) && state.dims == Dims({gates.dims[0], gates.dims[1] / 3}),
      "expected gates of [N, 3H] and a state of [N, H], but got ",
      sizes_text(gates.dims),
      ", ",
      sizes_text(c.operand(1).dims),
      " and ",
      sizes_text(state.dims));
  c.add_result(state.dtype, state.dims);
  c.add_result(gates.dtype, {state.dims[0], 5 * state.dims[1]});
}

void expand_gru_cell(ExpandContext& c) {
  Ex input = c.has(3) ? c.computed(0) + c.computed(3) : c.computed(0);
  Ex state = c.has(4) ? c.computed(1) + c.computed(4) : c.computed(1);
  Ex hx = c.computed(2);
  int64_t hidden = c.operand(2).dims[1];
  Ex r = logistic(gate(input, 0, hidden) + gate(state, 0, hidden));
  Ex z = logistic(gate(input, 1, hidden) + gate(state, 1, hidden));
  Ex hidden_n = gate(state, 2, hidden);
  Ex n = tanh(gate(input, 2, hidden) + r * hidden_n);
  c.set(0, n + z * (hx - n));
  c.set(1, concatenate({r, z, n, hx, hidden_n}));
}

// Operands: grad_hy, workspace. Attribute: has_bias. Results: grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias,
// grad_hidden_bias.
void infer_gru_cell_backward(InferContext& c) {
  Type state = c.operand(0);
  DType dtype = c.operand(1).dtype;
  int64_t gates = 3 * state.dims[1];
  c.add_result(dtype, {state.dims[0], gates});
  c.add_result(dtype, {state.dims[0], gates});
  c.add_result(state.dtype, state.dims);
  for (int i = 0; i < 2; ++i) {
    if (c.get_bool(0)) {
      c.add_result(dtype, {gates});
    } else {
      c.add_undefined();
    }
  }
}

void expand_gru_cell_backward(ExpandContext& c) {
  Ex grad = c.computed(0);
  Ex workspace = c.computed(1);
  int64_t hidden = grad.type().dims[1];
  Ex r = gate(workspace, 0, hidden);
  Ex z = gate(workspace, 1, hidden);
  Ex n = gate(workspace, 2, hidden);
  Ex grad_n = grad * (1.0 - z) * (1.0 - n * n);
  Ex grad_r = grad_n * gate(workspace, 4, hidden) * r * (1.0 - r);
  Ex grad_z = grad * (gate(workspace, 3, hidden) - n) * z * (1.0 - z);
  Ex grads[] = {concatenate({grad_r, grad_z, grad_n}), concatenate({grad_r, grad_z, grad_n * r})};
  c.set(2, grad * z);
  for (size_t i = 0; i < 2; ++i) {
    c.set(i, grads[i]);
    if (c.get_bool(0)) {
      c.set(3 + i, grads[i].reduce(Prim::kReduceSum, {0}));
    }
  }
}

constinit const Op kRows[] = {
    LIBRARY("mkldnn_rnn_layer", infer_layer, .reads = kDenseOperands),
    COMPOSITE("_thnn_fused_lstm_cell", infer_cell, expand_cell),
    COMPOSITE("_thnn_fused_lstm_cell_backward_impl", infer_cell_backward, expand_cell_backward),
    COMPOSITE("_thnn_fused_gru_cell", infer_gru_cell, expand_gru_cell),
    COMPOSITE("_thnn_fused_gru_cell_backward", infer_gru_cell_backward, expand_gru_cell_backward),
    CALL("mkldnn_rnn_layer_backward", kAllFloats, .reads = kDenseOperands),
};

} // namespace

void note_workspace(const LstmLayer& layer, int64_t bytes) {
  workspaces().add(hash_of(layer), bytes);
}

std::optional<int64_t> find_workspace(const LstmLayer& layer) {
  return workspaces().find(hash_of(layer));
}

std::span<const Op> rnn_ops() {
  return kRows;
}

} // namespace torch_xla
