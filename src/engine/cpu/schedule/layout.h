// Decides the memory order of each value, if it is stored: strides of values, views as aliases, copies where no alias is possible.
#pragma once

#include "engine/cpu/place.h"

namespace torch_xla::cpu {

// The graph with all copies and splits explicit: identity conversions where a view needs another memory order or an output needs its own
// memory; large reductions with small results in two levels, and their only operands in pieces; reductions over extents of 1 as identities.
// Views get base strides, strides and offset relative to their root; view updates get them relative to operand 0's memory order.
LaidOutGraph lay_out(const Graph& graph);

} // namespace torch_xla::cpu
