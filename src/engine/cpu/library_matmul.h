// Large float32 products by oneDNN, on processors on which the library that ATen calls for them is slower.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ir/graph.h"

namespace torch_xla::cpu {

// True for mm and addmm (beta and alpha 1) that oneDNN computes faster. `node` is of the graph.
bool prefers_onednn(const Graph& graph, const Node& node);
// Operands of mm: a, b; of addmm: bias, a, b. `out` is row-major and none of them.
void multiply_by_onednn(const std::vector<at::Tensor>& operands, const at::Tensor& out);

} // namespace torch_xla::cpu
