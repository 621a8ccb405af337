// The kernel of barriers.
#include "engine/cpu/library/barrier.h"

namespace torch_xla::cpu {

void hand_on(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  for (size_t i = 0; i < outs.size(); ++i) {
    if (outs[i].const_data_ptr() != operands[i].const_data_ptr()) {
      outs[i].copy_(operands[i]);
    }
  }
}

} // namespace torch_xla::cpu
