// What the compilers behind plugins differ in, where a text that all of them take has a price or another value.
#pragma once

#include <string_view>

namespace torch_xla {

// The default is a compiler that follows StableHLO's specification.
struct StableHloTarget {
  bool keeps_nan = true; // in maximum and minimum, as reducers too
  bool has_top_k = false; // chlo.top_k of float32, with NaN as the largest number; compiling a sort takes minutes there
  bool reduces_pairs = false; // elements with their positions in one reduction, for half the price of two
};

// By PJRT's name of the platform: "cpu", "tpu", "cuda".
StableHloTarget find_stablehlo_target(std::string_view platform);

} // namespace torch_xla
