// How exact products of float32 numbers are.
#pragma once

#include <cstdint>

namespace torch_xla {

// Precision that a device may use for products of float32 numbers. The words are XLA's: three products of bfloat16 or one of TF32 for
// "high", one of bfloat16 or TF32 for "default".
struct Precision {
  enum Level : uint8_t { kDefault, kHigh, kHighest };
  Level products = kHighest;
  Level convolutions = kHighest;
};

// How an engine reads PyTorch's switches (torch.set_float32_matmul_precision, torch.backends).
struct PrecisionRules {
  Precision::Level unchosen = Precision::kHighest; // where the user has chosen nothing
  bool has_cudnn = false; // convolutions follow cuDNN's switch
};

} // namespace torch_xla
