// The cost of recomputing a value in another kernel instead of storing and loading it.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace torch_xla::cpu {

class Recompute {
 public:
  Recompute() = default; // of no graph
  explicit Recompute(const Graph& graph);

  // Never worth storing for other kernels: an index, or a single number or few operations on constants and scalars only.
  bool is_free(ValueId v) const {
    return items_[v].free;
  }
  // Worth recomputing in a kernel over `elements` elements. `in_vectors`: the value differs between the elements of a vector, so the kernel
  // computes it for each element, however small it is.
  bool is_cheap_in(ValueId v, int64_t elements, bool in_vectors) const;

 private:
  struct Item {
    bool free = false;
    bool pointwise = false; // may be recomputed at all
    int cost = 0; // of the tree over stored values
    int loads = 0;
    int64_t elements = 0;
  };
  Item make_item(const Graph& graph, ValueId v) const;
  Item make_pointwise(const Graph& graph, const Node& node) const;

  std::vector<Item> items_; // by value
};

} // namespace torch_xla::cpu
