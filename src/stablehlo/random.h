// Random bits as StableHLO.
#pragma once

#include <array>

#include "stablehlo/hlo.h"

namespace torch_xla::stablehlo {

// The four words of each element's philox block, as I32; the linear index is the counter.
std::array<Hlo, 4> write_random_bits(Hlo seed, Hlo offset, const Dims& dims);

} // namespace torch_xla::stablehlo
