// Facts about oneDNN's recurrent layers that only oneDNN knows.
#pragma once

#include <cstdint>
#include <optional>

#include "core/dtype.h"

namespace torch_xla {

// The sizes that determine the bytes of oneDNN's workspace of a training LSTM layer for its gradient.
struct LstmLayer {
  DType dtype = DType::Undefined;
  int64_t steps = 0; // T
  int64_t batch = 0; // N
  int64_t inputs = 0; // C
  int64_t hidden = 0; // H
};

// Sets the bytes, for a caller that has asked oneDNN (kernels/rnn.cpp). Any thread.
void note_workspace(const LstmLayer& layer, int64_t bytes);
std::optional<int64_t> find_workspace(const LstmLayer& layer);

} // namespace torch_xla
