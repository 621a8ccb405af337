// Primitives, views and random bits as StableHLO.
#pragma once

#include <array>

#include "engine/pjrt/stablehlo/hlo.h"
#include "ir/graph.h"
#include "passes/compose.h"

namespace torch_xla::stablehlo {

// A primitive node but kRandomBits. Operands are parallel to the node's.
Hlo write_primitive(Text& text, const Node& node, const Hlos& operands, const Type& result);
// The four words of each element's philox block, as I32; the linear index is the counter.
std::array<Hlo, 4> write_random_bits(Hlo seed, Hlo offset, const Dims& dims);

// A value with the dims of its memory order, slowest first, back to `dims`; strides tell the order.
Hlo from_memory_order(Hlo x, const Dims& dims, const Dims& strides);
Dims memory_order_dims(const Dims& dims, const Dims& strides);

// x, which has view.base_dims, seen through the view.
Hlo write_view(Hlo x, const ViewGeometry& view);
// x with the elements that the view shows replaced by the update's, which has view.dims.
Hlo write_view_update(Hlo x, Hlo update, const ViewGeometry& view);

} // namespace torch_xla::stablehlo
