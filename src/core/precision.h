// How exact products of float32 numbers are.
#pragma once

#include <cstdint>

namespace torch_xla {

// Precision that a device may use for products of float32 numbers, by PyTorch's switches (torch.set_float32_matmul_precision,
// torch.backends). The words are XLA's: three products of bfloat16 or one of TF32 for "high", one of bfloat16 or TF32 for "default".
struct Precision {
  enum Level : uint8_t { kDefault, kHigh, kHighest };
  Level products = kHighest;
  Level convolutions = kHighest;
  Level cuda_convolutions = kHighest; // cuDNN has a switch of its own
};

} // namespace torch_xla
