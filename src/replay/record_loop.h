// Loops: a recorded body that runs in turns, as one node; and new random numbers for what is run again.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "trace/body.h"

namespace torch_xla {

// The operands of a loop that are not its body's own; the words are those of LoopAttr (ir/computation.h).
struct LoopCall {
  std::vector<at::Tensor> carried;
  std::vector<at::Tensor> sliced;
  std::optional<int64_t> trips;
  bool reverse = false;
};
// Records the loop and returns its results. Throws UserError where the tensors do not fit the body.
std::vector<at::Tensor> record_loop(int device, const Body& body, const LoopCall& call);
// The bodies with new numbers for what they draw, as if they were recorded again now. Where several draw the same they still do.
std::vector<Body> with_new_draws(int device, std::vector<Body> bodies);
// The numbers of one graph, the same way.
std::vector<Number> draw_again(int device, const std::vector<Computation::Draw>& draws, std::vector<Number> numbers);

} // namespace torch_xla
