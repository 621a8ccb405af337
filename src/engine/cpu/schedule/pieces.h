// Finds values that a program computes in pieces, for large sums with few results.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cpu/schedule/reduction.h"
#include "ir/graph.h"

namespace torch_xla::cpu {

// Pointwise results that reductions in pieces (ReductionCut) of a first dim read, directly or through other such values. Computed in
// pieces, one kernel computes and sums them; a view of the whole value would force a store. If other nodes read the value too, a cheap one
// is computed twice; else it is stored, and the pieces are a view of the whole or, in one dim, the whole is a view of the pieces.
class ValuesInPieces {
 public:
  explicit ValuesInPieces(const Graph& graph);

  // The cut of v, or null.
  const ReductionCut* find_cut(ValueId v) const {
    return uses_[v].cut < 0 ? nullptr : &cuts_[static_cast<size_t>(uses_[v].cut)];
  }
  // Whether it is computed as a whole, and whether the whole is a view of its pieces. Both false if no node reads the whole.
  bool is_whole(ValueId v) const {
    return uses_[v].is_whole && !uses_[v].is_view;
  }
  bool is_view(ValueId v) const {
    return uses_[v].is_view;
  }

 private:
  struct Use {
    int32_t cut = -1; // into cuts_
    bool is_whole = false; // a node reads the whole
    bool is_view = false;
  };

  void use_operand(const Graph& graph, const Node& reader, ValueId v);
  int32_t find_cut_of(const Graph& graph, const Node& reduction);
  void use(ValueId v, int32_t cut);

  std::vector<Use> uses_; // by value
  std::vector<ReductionCut> cuts_;
};

} // namespace torch_xla::cpu
