// Loops: one node that runs a recorded body in turns; and new random numbers for repeated runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "trace/body.h"

namespace torch_xla {

// The operands of a loop beside its body's own; words as in LoopAttr (ir/computation.h).
struct LoopCall {
  std::vector<at::Tensor> carried;
  std::vector<at::Tensor> sliced;
  std::optional<int64_t> trips;
  bool reverse = false;
};
// Records the loop and returns its results. Throws UserError if the tensors do not fit the body.
std::vector<at::Tensor> record_loop(int device, const Body& body, const LoopCall& call);
// The bodies with new random numbers, as if recorded again now. Bodies with the same draw still share it.
std::vector<Body> with_new_draws(int device, std::vector<Body> bodies);
// The numbers of one graph with new draws, the same way.
std::vector<Number> draw_again(int device, const std::vector<Computation::Draw>& draws, std::vector<Number> numbers);

} // namespace torch_xla
