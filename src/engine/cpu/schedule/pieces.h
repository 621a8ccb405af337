// Which values a program computes in the pieces that a sum of much to little takes them in.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cpu/schedule/reduction.h"
#include "ir/graph.h"

namespace torch_xla::cpu {

// Pointwise results that reductions in pieces (ReductionCut) of a first dim read, directly or through other such values: a kernel then
// computes and sums them, where a view of what is computed would have it stored. What others read too is computed twice if that is cheap;
// else it is stored, and either the pieces are a view of the whole or, in one dim, the whole is one of the pieces.
class ValuesInPieces {
 public:
  explicit ValuesInPieces(const Graph& graph);

  // How v is cut, or null.
  const ReductionCut* find_cut(ValueId v) const {
    return uses_[v].cut < 0 ? nullptr : &cuts_[static_cast<size_t>(uses_[v].cut)];
  }
  // Whether it is computed as a whole, and whether that is a view of its pieces. Neither where nobody reads it so.
  bool is_whole(ValueId v) const {
    return uses_[v].is_whole && !uses_[v].is_view;
  }
  bool is_view(ValueId v) const {
    return uses_[v].is_view;
  }

 private:
  struct Use {
    int32_t cut = -1; // into cuts_
    bool is_whole = false; // somebody reads it so
    bool is_view = false;
  };

  void use_operand(const Graph& graph, const Node& reader, ValueId v);
  int32_t find_cut_of(const Graph& graph, const Node& reduction);
  void use(ValueId v, int32_t cut);

  std::vector<Use> uses_; // by value
  std::vector<ReductionCut> cuts_;
};

} // namespace torch_xla::cpu
