// What it would cost to compute a value once more in another kernel instead of storing and loading it.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace torch_xla::cpu {

class Recompute {
 public:
  Recompute() = default; // of no graph
  explicit Recompute(const Graph& graph);

  // An index, or by few operations, or as a single number, made of constants and scalars only: never worth storing for other kernels.
  bool is_free(ValueId v) const {
    return items_[v].free;
  }
  // Worth computing again in a kernel over `elements` elements. `in_vectors`: it differs between those of a vector, so that the kernel
  // computes it for each element, however small it is.
  bool is_cheap_in(ValueId v, int64_t elements, bool in_vectors) const;

 private:
  struct Item {
    bool free = false;
    bool pointwise = false; // may be computed again at all
    int cost = 0; // of the tree over stored values
    int loads = 0;
    int64_t elements = 0;
  };
  Item make_item(const Graph& graph, ValueId v) const;
  Item make_pointwise(const Graph& graph, const Node& node) const;

  std::vector<Item> items_; // by value
};

} // namespace torch_xla::cpu
