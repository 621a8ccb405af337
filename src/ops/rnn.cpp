// Recurrent layers: one direction of one layer as one library call (inference), and the LSTM cell of training.
#include "core/errors.h"
#include "ops/math.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// Operands: input [T, N, C], four weights, hx, cx. Attributes: reverse, batch_sizes, mode, hidden_size, num_layers, has_biases,
// bidirectional, batch_first, train. Results: output, hy, cy, workspace.
void infer_layer(InferContext& c) {
  constexpr int64_t kLstm = 2; // the only kind of cell that ATen's layer has
  XLA_CHECK(c.get_int(2) == kLstm, "mkldnn_rnn_layer computes LSTMs only: expected mode 2, got ", c.get_int(2));
  require_float(c, 0);
  require_rank(c, 0, 3, "the input of a recurrent layer must be 3D");
  if (c.get_bool(8)) {
    fall_back("the workspace of a training layer has a size that only oneDNN knows");
  }
  Type input = c.operand(0);
  c.add_result(input.dtype, {input.dims[0], input.dims[1], c.get_int(3)});
  c.add_result(input.dtype, c.operand(5).dims);
  c.add_result(input.dtype, c.operand(6).dims);
  c.add_result(DType::U8, {0});
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

// Columns [k * H, (k + 1) * H) of a [N, 4H] value.
Ex gate(Ex gates, int64_t k) {
  const Dims& dims = gates.type().dims;
  int64_t hidden = dims[1] / 4;
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
  double hidden = static_cast<double>(dims[1] / 4);
  Ex gates = select((column >= 2 * hidden) & (column < 3 * hidden), tanh(sum), logistic(sum));
  Ex cy = gate(gates, 1) * c.computed(2) + gate(gates, 0) * gate(gates, 2);
  c.set(0, gate(gates, 3) * tanh(cy));
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

Ex concatenate_gates(ExpandContext& c, std::initializer_list<Ex> parts) {
  std::vector<ValueId> operands;
  for (Ex part : parts) {
    operands.push_back(part.id());
  }
  Type result{parts.begin()->dtype(), c.operand(4).dims};
  return {&c.b(), c.b().library(*find_op("aten::cat"), operands, {int64_t{4}, int64_t{1}}, {&result, 1})};
}

void expand_cell_backward(ExpandContext& c) {
  Ex gates = c.computed(4);
  Ex i = gate(gates, 0);
  Ex f = gate(gates, 1);
  Ex g = gate(gates, 2);
  Ex o = gate(gates, 3);
  Ex t = tanh(c.computed(3));
  Ex zero = t * 0.0;
  Ex grad_h = c.has(0) ? c.computed(0) : zero;
  Ex grad_c = grad_h * o * (1.0 - t * t) + (c.has(1) ? c.computed(1) : zero);
  Ex grad_gates = concatenate_gates(
      c, {grad_c * g * i * (1.0 - i), grad_c * c.computed(2) * f * (1.0 - f), grad_c * i * (1.0 - g * g), grad_h * t * o * (1.0 - o)});
  c.set(0, grad_gates);
  c.set(1, grad_c * f);
  if (c.get_bool(0)) {
    c.set(2, grad_gates.reduce(Prim::kReduceSum, {0}));
  }
}

constinit const Op kRows[] = {
    {.name = "aten::mkldnn_rnn_layer", .kind = OpKind::kLibrary, .infer = infer_layer},
    {.name = "aten::_thnn_fused_lstm_cell", .kind = OpKind::kComposite, .infer = infer_cell, .expand = expand_cell},
    {.name = "aten::_thnn_fused_lstm_cell_backward_impl",
     .kind = OpKind::kComposite,
     .infer = infer_cell_backward,
     .expand = expand_cell_backward},
};

} // namespace

std::span<const Op> rnn_ops() {
  return kRows;
}

} // namespace torch_xla
