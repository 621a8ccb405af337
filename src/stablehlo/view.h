// Views and writes through views as StableHLO.
#pragma once

#include "ir/view.h"
#include "stablehlo/hlo.h"

namespace torch_xla::stablehlo {

// Brings a value with dims in memory order, slowest first, back to `dims`; `strides` give the order.
Hlo from_memory_order(Hlo x, const Dims& dims, const Dims& strides);
Dims memory_order_dims(const Dims& dims, const Dims& strides);

// x, which has view.base_dims, seen through the view.
Hlo write_view(Hlo x, const ViewGeometry& view);
// x with the elements that the view shows replaced by the update's, which has view.dims.
Hlo write_view_update(Hlo x, Hlo update, const ViewGeometry& view);

} // namespace torch_xla::stablehlo
