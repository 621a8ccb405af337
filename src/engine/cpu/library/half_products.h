// Products of 16-bit floats, for which a processor may have no instructions: docs/decisions/products.md.
#pragma once

#include "ir/graph.h"

namespace torch_xla::cpu {

// Whether the processor has instructions of its own for products of bfloat16, which oneDNN uses.
bool multiplies_bf16_fast();
// Whether ATen multiplies matrices of such floats by plain loops on this processor.
bool multiplies_slowly(DType dtype);
// Whether a call with such products is several times faster in float32. False for products of a few rows, which read their matrix in 16
// bits.
bool widens_products(const Graph& graph, const Node& call);

} // namespace torch_xla::cpu
