// The platforms that need another text than the specification's.
#include "stablehlo/target.h"

namespace torch_xla {

StableHloTarget find_stablehlo_target(std::string_view platform) {
  StableHloTarget target;
  target.keeps_nan = platform != "cpu"; // XLA's client: its vector code drops a NaN in the second operand
  target.has_top_k = platform == "tpu";
  target.reduces_pairs = platform == "tpu"; // Tenstorrent's compiler refuses them
  return target;
}

} // namespace torch_xla
