// Decides where each value lies in memory if it is stored at all: strides of values, views as aliases, copies where no alias is possible.
#pragma once

#include "engine/cpu/place.h"

namespace torch_xla::cpu {

// The graph with what memory needs made explicit: identity conversions where a view needs another memory order or an output needs memory of
// its own, large reductions to little in two levels and what they alone read in pieces, reductions over extents of 1 as identities. Views
// get base strides, strides and offset in terms of their root; view updates those of operand 0's memory order.
LaidOutGraph lay_out(const Graph& graph);

} // namespace torch_xla::cpu
