// Nodes choose their groups in the order of the graph, by the groups of their operands.
#include "engine/cpu/schedule/grouping.h"

#include <algorithm>

#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/schedule/reduction.h"

namespace torch_xla::cpu {
namespace {

class Grouping {
  using Readers = InlineVec<int, 4>;
  static constexpr int kAView = -1; // among readers

 public:
  Grouping(const LaidOutGraph& laid_out, const Recompute& recompute, bool enabled)
      : graph_(laid_out.graph),
        places_(laid_out.places),
        enabled_(enabled),
        recompute_(recompute),
        groups_{{}, std::vector<int>(graph_.values.size(), -1)},
        ready_(graph_.values.size(), 0),
        after_reduce_(graph_.values.size()),
        readers_(graph_.values.size()) {}

  Groups run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      place_node(static_cast<int32_t>(i));
    }
    return std::move(groups_);
  }

 private:
  // Results of library calls and updates lie in memory: later groups can read them. A view is an address, not work.
  void place_node(int32_t index) {
    const Node& node = graph_.nodes[index];
    if (node.op->kind == OpKind::kView) {
      ready_[node.result()] = after(node.operands[0]);
      readers_[node.operands[0]].push_back(kAView);
      return;
    }
    if (enabled_ && node.op->kind == OpKind::kPrim) {
      merge_operand_groups(node);
    }
    int group = node.op->kind == OpKind::kPrim ? choose_group(node) : -1;
    if (group < 0) {
      group = static_cast<int>(groups_.list.size());
      groups_.list.push_back(new_group(node, index));
    }
    enter(node, group);
  }

  // The first group that can read v from memory: after the group that stores v, or its root if v is a view.
  int after(ValueId v) const {
    return groups_.of_value[v] >= 0 ? groups_.of_value[v] + 1 : ready_[v];
  }

  // The domain is what the node loops over: a reduction's operand. Leading extents of 1 would keep [1, n] and [n] apart.
  Group new_group(const Node& node, int32_t index) const {
    Group group;
    group.node = index;
    if (node.op->kind == OpKind::kPrim) {
      const Dims& dims = graph_.type(is_reduce(node.op->prim) ? node.operands[0] : node.result()).dims;
      group.domain = strip_leading_ones(dims);
    } else {
      group.kind = node.op->kind == OpKind::kLibrary ? StepKind::kLibrary : StepKind::kUpdate;
    }
    return group;
  }

  void enter(const Node& node, int index) {
    Group& group = groups_.list[index];
    for (int32_t i = 0; i < node.num_results; ++i) {
      ValueId v = node.result(i);
      groups_.of_value[v] = index;
      ready_[v] = group.kind == StepKind::kKernel ? index : index + 1;
      group.values.push_back(v);
    }
    for (ValueId operand : node.operands) {
      if (operand != kNoValue) {
        readers_[operand].push_back(index);
      }
    }
    if (group.kind != StepKind::kKernel) {
      return;
    }
    ValueId v = node.result();
    if (is_reduce(node.op->prim)) {
      add_reduction(group, node);
      after_reduce_[v] = true;
    } else {
      after_reduce_[v] = uses_reduction(node, index);
      bool element = align_dims(graph_.type(v).dims, group.domain.size()) == group.domain;
      group.expensive = group.expensive || (element && kernel_cost(node.op->prim) >= kExpensive);
    }
    for (ValueId operand : node.operands) {
      if (groups_.of_value[operand] != index && !recompute_.is_free(operand)) {
        group.earliest = std::max(group.earliest, ready_[operand]);
      }
    }
  }

  // If a node's operands are in two groups over one domain, the later group moves into the earlier one if its own operands permit.
  // Otherwise two branches (the two halves of a gated layer) would be two kernels, and a third would join them.
  void merge_operand_groups(const Node& node) {
    for (bool again = true; again;) {
      again = false;
      int last = -1;
      int before = -1;
      for (ValueId v : node.operands) {
        int group = recompute_.is_free(v) ? -1 : groups_.of_value[v];
        if (group > last) {
          before = last;
          last = group;
        } else if (group < last) {
          before = std::max(before, group);
        }
      }
      if (before >= 0 && can_merge(groups_.list[before], before, groups_.list[last])) {
        merge(before, last);
        again = true;
      } else if (before >= 0 && can_wait(groups_.list[before], before, groups_.list[last], last)) {
        merge(last, before);
        again = true;
      }
    }
  }

  // Whether two groups have one domain, and together few enough values for a kernel.
  static bool fit_together(const Group& a, const Group& b) {
    const bool kernels = a.kind == StepKind::kKernel && b.kind == StepKind::kKernel;
    return kernels && a.domain == b.domain && a.values.size() + b.values.size() <= kMaxValues;
  }

  // Nothing that `from` reads may be stored at `into` or later. At most one of the two reduces: a group's reductions are checked against
  // each other when they join, not here.
  static bool can_merge(const Group& into, int into_index, const Group& from) {
    if (!fit_together(into, from) || from.earliest > into_index) {
      return false;
    }
    // Values of `from` were not checked against the reductions of `into`.
    bool apart = !from.reduced && from.earliest < into_index;
    const Group& rows = into.reduced ? into : from;
    bool expensive = into.expensive || from.expensive;
    return (!into.reduced || apart) && (!rows.reduced || !expensive || row_fits(rows));
  }

  // Whether the earlier group `from` can move into the later one instead: no node has read it, and the groups between are short (sums for
  // the later group), so the operands of `from` need not live much longer.
  bool can_wait(const Group& from, int from_index, const Group& into, int into_index) const {
    if (!fit_together(into, from) || into.reduced || from.reduced) {
      return false;
    }
    const int64_t most = num_elements(from.domain) / kSmallShare;
    for (int index = from_index + 1; index < into_index; ++index) {
      const Group& between = groups_.list[index];
      if (!between.values.empty() && (between.kind != StepKind::kKernel || num_elements(between.domain) > most)) {
        return false;
      }
    }
    return std::none_of(from.values.begin(), from.values.end(), [&](ValueId v) { return is_read(v, from_index); });
  }

  bool is_read(ValueId v, int group) const {
    return std::any_of(readers_[v].begin(), readers_[v].end(), [group](int reader) { return reader != group; });
  }

  // The place of the group `from` in the order stays, without values; its readers now read the other one.
  void merge(int into_index, int from_index) {
    Group& into = groups_.list[into_index];
    Group& from = groups_.list[from_index];
    for (ValueId v : from.values) {
      groups_.of_value[v] = into_index;
      ready_[v] = into_index;
      into.values.push_back(v);
      for (ValueId operand : graph_.find_producer(v)->operands) {
        readers_[operand].push_back(into_index);
      }
    }
    if (from.reduced) {
      into.reduced = from.reduced;
      into.column = from.column;
    }
    into.expensive = into.expensive || from.expensive;
    from.values.clear(); // nothing joins it any more
    into.earliest = 0;
    for (ValueId v : into.values) {
      for (ValueId operand : graph_.find_producer(v)->operands) {
        if (groups_.of_value[operand] != into_index && !recompute_.is_free(operand)) {
          into.earliest = std::max(into.earliest, ready_[operand]);
        }
      }
    }
  }

  void add_reduction(Group& group, const Node& node) {
    group.reduced = reduced_mask(node, group.domain.size());
    group.column = is_column(node);
  }

  uint32_t reduced_mask(const Node& node, size_t rank) const {
    size_t own_rank = graph_.type(node.operands[0]).dims.size();
    uint32_t mask = 0;
    for (int64_t d : std::get<Dims>(node.attrs[0])) {
      mask |= 1u << (static_cast<size_t>(d) + rank - own_rank);
    }
    return mask;
  }

  bool is_column(const Node& node) const {
    const ValueId x = node.operands[0];
    return reduces_columns(graph_.type(x).dims, places_[x].strides, std::get<Dims>(node.attrs[0]));
  }

  // Whether the node reads a reduction of this group: results of other groups' reductions are loaded like any value.
  bool uses_reduction(const Node& node, int group) const {
    return std::any_of(
        node.operands.begin(), node.operands.end(), [&](ValueId v) { return groups_.of_value[v] == group && after_reduce_[v]; });
  }

  // Prefers the highest group of an operand, which saves a store and a load; else a group that reads the same large operand, which saves a
  // load. Both must be at or after the last operand's group. The latest readers are tried: earlier ones mostly run before all operands
  // exist.
  int choose_group(const Node& node) const {
    if (!enabled_ || node.operands.empty()) {
      return -1;
    }
    int earliest = 0;
    for (ValueId v : node.operands) {
      earliest = std::max(earliest, recompute_.is_free(v) ? 0 : ready_[v]);
    }
    if (earliest < static_cast<int>(groups_.list.size()) && is_operand_group(node, earliest) &&
        can_join(groups_.list[earliest], earliest, node)) {
      return earliest;
    }
    for (ValueId v : node.operands) {
      size_t tried = 0;
      const Readers& readers = readers_[v];
      for (size_t i = readers.size(); i-- > 0 && tried < kMaxReaders; ++tried) {
        const Group& group = groups_.list[readers[i]];
        if (readers[i] >= earliest && strip_leading_ones(graph_.type(v).dims) == group.domain && graph_.type(v).numel() > 1 &&
            can_join(group, readers[i], node)) {
          return readers[i];
        }
      }
    }
    return -1;
  }

  bool is_operand_group(const Node& node, int group) const {
    return std::any_of(
        node.operands.begin(), node.operands.end(), [&](ValueId v) { return groups_.of_value[v] == group && !recompute_.is_free(v); });
  }

  // A group that was merged into another stays empty.
  bool can_join(const Group& group, int index, const Node& node) const {
    if (group.kind != StepKind::kKernel || group.values.empty() || group.values.size() >= kMaxValues) {
      return false;
    }
    return is_reduce(node.op->prim) ? can_join_reduction(group, index, node) : can_join_pointwise(group, index, node);
  }

  // All reductions of a group run over the same dims, so that they share sweeps. In a row kernel one may follow another (a variance after
  // its mean): the row is swept once more. In a column kernel the results of the first are complete only when the sweep has ended.
  bool can_join_reduction(const Group& group, int index, const Node& node) const {
    if (strip_leading_ones(graph_.type(node.operands[0]).dims) != group.domain) {
      return false;
    }
    if (group.reduced) {
      uint32_t reduced = reduced_mask(node, group.domain.size());
      bool same = reduced == group.reduced && is_column(node) == group.column;
      return same && !(group.column && uses_reduction(node, index)) && row_is_held(group, uses_reduction(node, index));
    }
    return true;
  }

  // Whether the node runs over the domain's elements or, in a group with a reduction, over its results: a mean divides in the kernel of its
  // sum. A value with fewer elements would be recomputed for each row or column of its broadcast.
  bool can_join_pointwise(const Group& group, int index, const Node& node) const {
    Dims dims = strip_leading_ones(graph_.type(node.result()).dims);
    if (dims.size() > group.domain.size()) {
      return false;
    }
    dims = align_dims(dims, group.domain.size());
    bool after = uses_reduction(node, index);
    if (dims == group.domain) {
      return !(after && group.column) && row_is_held(group, after);
    }
    return group.reduced && dims == row_dims(group.domain, group.reduced) && (after || !group.column);
  }

  // Expensive element values that are used before and after a reduction are kept in scratch memory, a row at a time.
  static bool row_is_held(const Group& group, bool after) {
    return !after || !group.expensive || row_fits(group);
  }

  // Whether one value of the row fits, in float32. If several are kept, the code generator decides how many fit.
  static bool row_fits(const Group& group) {
    int64_t row = num_elements(group.domain) / std::max<int64_t>(num_elements(row_dims(group.domain, group.reduced)), 1);
    return row * static_cast<int64_t>(item_size(DType::F32)) <= kRowScratchBytes;
  }

  const Graph& graph_;
  const std::vector<Place>& places_;
  bool enabled_;
  const Recompute& recompute_;
  Groups groups_;
  std::vector<int> ready_; // by value: the first group that may use it, without or with memory
  std::vector<bool> after_reduce_; // by value: depends on a reduction of its own group
  std::vector<Readers> readers_; // by value: groups and views that use it, ascending by time of entry
};

} // namespace

Dims strip_leading_ones(const Dims& dims) {
  size_t first = 0;
  while (first < dims.size() && dims[first] == 1) {
    ++first;
  }
  return {dims.data() + first, dims.size() - first};
}

Dims align_dims(const Dims& dims, size_t rank) {
  Dims stripped = dims.size() > rank ? strip_leading_ones(dims) : dims;
  XLA_ASSERT(stripped.size() <= rank, "rank of a fused value");
  Dims result(rank - stripped.size(), 1);
  for (int64_t d : stripped) {
    result.push_back(d);
  }
  return result;
}

Dims row_dims(Dims domain, uint32_t reduced) {
  for (size_t d = 0; d < domain.size(); ++d) {
    domain[d] = reduced >> d & 1 ? 1 : domain[d];
  }
  return domain;
}

Groups group_nodes(const LaidOutGraph& laid_out, const Recompute& recompute, bool enabled) {
  return Grouping(laid_out, recompute, enabled).run();
}

} // namespace torch_xla::cpu
