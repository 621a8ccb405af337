// Coordinates for gather and scatter out of ATen's index operands.
#pragma once

#include "stablehlo/call.h"

namespace torch_xla::stablehlo {

Hlo wide_index(Hlo index); // as I64
Hlo wrapped_index(Hlo index, int64_t extent); // negative ones count from the end
// Coordinates of points in all dims: the index in dim `dim`, each point's own position in the others.
Hlos point_coordinates(Hlo index, size_t dim);
std::vector<size_t> dims_up_to(size_t rank);
// x at an index of x's rank along dim, element by element.
Hlo take_along(Hlo x, Hlo index, size_t dim);

// The indices of advanced indexing as coordinates; for each mask the numbers of its elements.
struct Indexed {
  std::vector<size_t> dims;
  Hlos coordinates;
  size_t at = 0; // see gather
};
Indexed read_indexed(const Call& c, const Hlo& self, const Hlos& mask_places = {});

} // namespace torch_xla::stablehlo
