// Appends a recorded graph to a trace.
#pragma once

#include <vector>

#include "recording/capture.h"

namespace torch_xla {

// One appending, under the recording lock of its recording. The order of calls: give the graph's parameters and scalars, append its nodes,
// read its values.
class Appending {
 public:
  Appending(Recording& recording, const Graph& graph) : recording_(recording), graph_(graph), mapped_(graph.values.size(), kNoValue) {}

  // Throws UserError for a tensor of another dtype or shape than the parameter's.
  void give(size_t parameter, const at::Tensor& t);
  void give_numbers(const std::vector<Number>& numbers);
  void append_nodes();
  // The trace's value for a value of the graph.
  ValueId at(ValueId v) const {
    return mapped_[static_cast<size_t>(v)];
  }

 private:
  Recording& recording_;
  const Graph& graph_;
  std::vector<ValueId> mapped_;
};

} // namespace torch_xla
