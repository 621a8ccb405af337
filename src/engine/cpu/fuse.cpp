// The fusion pass: forward, nodes choose groups; backward, groups learn what they must store.
#include "engine/cpu/fuse.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/errors.h"
#include "engine/cpu/recompute.h"

namespace torch_xla::cpu {
namespace {

constexpr int kMaxValues = 1200; // of a group: keeps kernels under about 3,000 instructions
constexpr int64_t kMaxSpilledRow = 256 << 10; // bytes
constexpr int kExpensive = 4;
constexpr size_t kMaxReaders = 16; // groups that are tried as a home beside the operands' own

struct Group {
  Step::Kind kind = Step::Kind::kKernel;
  int32_t node = -1;
  Dims domain;
  uint32_t reduced = 0;
  bool column = false;
  bool expensive = false; // has element values that are worth spilling
  int earliest = 0; // the first position at which all operands from outside exist
  std::vector<ValueId> values;
};

class Fusion {
 public:
  Fusion(const LaidOutGraph& laid_out, bool enabled)
      : graph_(laid_out.graph),
        places_(laid_out.places),
        enabled_(enabled),
        recompute_(graph_),
        group_of_(graph_.values.size(), -1),
        ready_(graph_.values.size(), 0),
        after_reduce_(graph_.values.size()),
        readers_(graph_.values.size()),
        needed_(graph_.values.size()) {}

  std::vector<Step> run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      place_node(static_cast<int32_t>(i));
    }
    return emit();
  }

 private:
  // ---- Forward: groups ----

  void place_node(int32_t index) {
    const Node& node = graph_.nodes[index];
    if (node.op->kind == OpKind::kView) {
      ready_[node.result()] = after(node.operands[0]);
      return;
    }
    if (enabled_ && node.op->kind == OpKind::kPrim) {
      merge_operand_groups(node);
    }
    int group = node.op->kind == OpKind::kPrim ? choose_group(node) : -1;
    if (group < 0) {
      group = static_cast<int>(groups_.size());
      groups_.push_back(new_group(node, index));
    }
    enter(node, group);
  }

  // The first group in which memory of v can be read.
  int after(ValueId v) const {
    return group_of_[v] >= 0 ? group_of_[v] + 1 : ready_[v];
  }

  Group new_group(const Node& node, int32_t index) const {
    Group group;
    group.node = index;
    if (node.op->kind == OpKind::kPrim) {
      const Dims& dims = graph_.type(is_reduce(node.op->prim) ? node.operands[0] : node.result()).dims;
      group.domain = strip_leading_ones(dims);
    } else {
      group.kind = node.op->kind == OpKind::kLibrary ? Step::Kind::kLibrary : Step::Kind::kUpdate;
    }
    return group;
  }

  void enter(const Node& node, int index) {
    Group& group = groups_[index];
    for (int32_t i = 0; i < node.num_results; ++i) {
      ValueId v = node.result(i);
      group_of_[v] = index;
      ready_[v] = group.kind == Step::Kind::kKernel ? index : index + 1;
      group.values.push_back(v);
    }
    if (group.kind != Step::Kind::kKernel) {
      return;
    }
    ValueId v = node.result();
    if (is_reduce(node.op->prim)) {
      add_reduction(group, node);
      after_reduce_[v] = true;
    } else {
      after_reduce_[v] = uses_reduction(node, index);
      bool element = align_dims(graph_.type(v).dims, group.domain.size()) == group.domain;
      group.expensive = group.expensive || (element && Recompute::op_cost(node.op->prim) >= kExpensive);
    }
    for (ValueId operand : node.operands) {
      readers_[operand].push_back(index);
      if (group_of_[operand] != index && !recompute_.is_free(operand)) {
        group.earliest = std::max(group.earliest, ready_[operand]);
      }
    }
  }

  // Where a node's operands are in two groups over one domain, the later one moves into the earlier one if its own operands permit.
  void merge_operand_groups(const Node& node) {
    for (bool again = true; again;) {
      again = false;
      int last = -1;
      int before = -1;
      for (ValueId v : node.operands) {
        int group = recompute_.is_free(v) ? -1 : group_of_[v];
        if (group > last) {
          before = last;
          last = group;
        } else if (group < last) {
          before = std::max(before, group);
        }
      }
      if (before >= 0 && can_merge(groups_[before], before, groups_[last])) {
        merge(before, last);
        again = true;
      }
    }
  }

  static bool can_merge(const Group& into, int into_index, const Group& from) {
    bool kernels = into.kind == Step::Kind::kKernel && from.kind == Step::Kind::kKernel;
    if (!kernels || into.domain != from.domain || from.earliest > into_index || into.values.size() + from.values.size() > kMaxValues) {
      return false;
    }
    // Values of `from` were not checked against the reductions of `into`.
    bool apart = !from.reduced && from.earliest < into_index;
    const Group& rows = into.reduced ? into : from;
    bool expensive = into.expensive || from.expensive;
    return (!into.reduced || apart) && (!rows.reduced || !expensive || row_fits(rows));
  }

  void merge(int into_index, int from_index) {
    Group& into = groups_[into_index];
    Group& from = groups_[from_index];
    for (ValueId v : from.values) {
      group_of_[v] = into_index;
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
        if (group_of_[operand] != into_index && !recompute_.is_free(operand)) {
          into.earliest = std::max(into.earliest, ready_[operand]);
        }
      }
    }
  }

  void add_reduction(Group& group, const Node& node) {
    group.reduced = reduced_mask(node, group.domain.size());
    group.column = is_column(node, group);
  }

  uint32_t reduced_mask(const Node& node, size_t rank) const {
    size_t own_rank = graph_.type(node.operands[0]).dims.size();
    uint32_t mask = 0;
    for (int64_t d : std::get<std::vector<int64_t>>(node.attrs[0])) {
      mask |= 1u << (static_cast<size_t>(d) + rank - own_rank);
    }
    return mask;
  }

  // The reduction leaves the dimension that is innermost in memory.
  bool is_column(const Node& node, const Group& group) const {
    const Dims& dims = graph_.type(node.operands[0]).dims;
    Dims strides = operand_strides(node.operands[0]);
    int innermost = -1;
    for (size_t d = 0; d < dims.size(); ++d) {
      bool moves = dims[d] > 1 && strides[d] > 0;
      if (moves && (innermost < 0 || strides[d] <= strides[innermost])) {
        innermost = static_cast<int>(d);
      }
    }
    return innermost >= 0 && !(group.reduced >> (innermost + group.domain.size() - dims.size()) & 1);
  }

  Dims operand_strides(ValueId v) const {
    const Dims& strides = places_[v].strides;
    return strides.size() == graph_.type(v).dims.size() ? strides : contiguous_strides(graph_.type(v).dims);
  }

  bool uses_reduction(const Node& node, int group) const {
    return std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId v) { return group_of_[v] == group && after_reduce_[v]; });
  }

  // The highest group among the operands', else one that reads a large operand too, both at or after the last operand's group.
  int choose_group(const Node& node) const {
    if (!enabled_ || node.operands.empty()) {
      return -1;
    }
    int earliest = 0;
    for (ValueId v : node.operands) {
      earliest = std::max(earliest, recompute_.is_free(v) ? 0 : ready_[v]);
    }
    if (earliest < static_cast<int>(groups_.size()) && is_operand_group(node, earliest) && can_join(groups_[earliest], earliest, node)) {
      return earliest;
    }
    for (ValueId v : node.operands) {
      size_t tried = 0;
      for (auto it = readers_[v].rbegin(); it != readers_[v].rend() && tried < kMaxReaders; ++it, ++tried) {
        const Group& group = groups_[*it];
        if (*it >= earliest && strip_leading_ones(graph_.type(v).dims) == group.domain && graph_.type(v).numel() > 1 &&
            can_join(group, *it, node)) {
          return *it;
        }
      }
    }
    return -1;
  }

  bool is_operand_group(const Node& node, int group) const {
    return std::any_of(
        node.operands.begin(), node.operands.end(), [&](ValueId v) { return group_of_[v] == group && !recompute_.is_free(v); });
  }

  bool can_join(const Group& group, int index, const Node& node) const {
    if (group.kind != Step::Kind::kKernel || group.values.empty() || group.values.size() >= kMaxValues) {
      return false;
    }
    return is_reduce(node.op->prim) ? can_join_reduction(group, index, node) : can_join_pointwise(group, index, node);
  }

  bool can_join_reduction(const Group& group, int index, const Node& node) const {
    if (strip_leading_ones(graph_.type(node.operands[0]).dims) != group.domain) {
      return false;
    }
    Group with = group;
    with.values.clear();
    with.reduced = reduced_mask(node, group.domain.size());
    with.column = is_column(node, with);
    if (group.reduced) {
      bool same = with.reduced == group.reduced && with.column == group.column;
      return same && !(group.column && uses_reduction(node, index)) && row_is_held(group, uses_reduction(node, index));
    }
    return true;
  }

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
    return group.reduced && dims == row_dims(group) && (after || !group.column);
  }

  static Dims row_dims(const Group& group) {
    Dims dims = group.domain;
    for (size_t d = 0; d < dims.size(); ++d) {
      dims[d] = group.reduced >> d & 1 ? 1 : dims[d];
    }
    return dims;
  }

  // Expensive element values from before a reduction that are used after it are kept in scratch memory, a row at a time.
  static bool row_is_held(const Group& group, bool after) {
    return !after || !group.expensive || row_fits(group);
  }

  static bool row_fits(const Group& group) {
    int64_t row = num_elements(group.domain) / std::max<int64_t>(num_elements(row_dims(group)), 1);
    return row * 4 <= kMaxSpilledRow;
  }

  // ---- Backward: stores and bodies ----

  std::vector<Step> emit() {
    for (ValueId v : graph_.outputs) {
      need(v);
    }
    std::vector<Step> steps;
    for (size_t i = groups_.size(); i-- > 0;) {
      if (groups_[i].kind == Step::Kind::kKernel) {
        emit_kernels(groups_[i], static_cast<int>(i), steps);
      } else {
        emit_call(groups_[i], steps);
      }
    }
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

  void need(ValueId v) {
    if (v != kNoValue) {
      needed_[places_[v].root] = true;
    }
  }

  void emit_call(const Group& group, std::vector<Step>& steps) {
    bool used = std::any_of(group.values.begin(), group.values.end(), [&](ValueId v) { return needed_[v]; });
    if (!used) {
      return;
    }
    Step step;
    step.kind = group.kind;
    step.node = group.node;
    for (ValueId v : graph_.nodes[group.node].operands) {
      need(v);
    }
    steps.push_back(std::move(step));
  }

  // One kernel, except where the reduction that joined values of two shapes has turned out to be of no use.
  void emit_kernels(const Group& group, int index, std::vector<Step>& steps) {
    std::vector<ValueId> stores;
    for (ValueId v : group.values) {
      if (needed_[v]) {
        stores.push_back(v);
      }
    }
    if (stores.empty()) {
      return;
    }
    std::sort(stores.begin(), stores.end());
    Step whole = make_step(group, index, stores);
    bool reduces = std::any_of(whole.body.begin(), whole.body.end(), [&](ValueId v) { return is_reduce(prim_of(v)); });
    if (reduces) {
      steps.push_back(std::move(whole));
      return;
    }
    std::map<std::vector<int64_t>, std::vector<ValueId>> by_dims;
    for (ValueId v : stores) {
      by_dims[strip_leading_ones(graph_.type(v).dims).vec()].push_back(v);
    }
    for (auto& [dims, values] : by_dims) {
      Group part;
      part.domain = Dims(dims);
      steps.push_back(make_step(part, index, values));
    }
  }

  bool is_computed_again(ValueId v, int64_t elements) const {
    return graph_.find_producer(v) && (enabled_ ? recompute_.is_cheap_in(v, elements) : recompute_.is_free(v));
  }

  Prim prim_of(ValueId v) const {
    return graph_.find_producer(v)->op->prim;
  }

  Step make_step(const Group& group, int index, const std::vector<ValueId>& stores) {
    Step step;
    step.domain = group.domain;
    step.reduced = group.reduced;
    step.form = !group.reduced ? KernelForm::kPointwise : group.column ? KernelForm::kColumn : KernelForm::kRow;
    step.stores = stores;
    int64_t elements = num_elements(group.domain);
    std::set<ValueId, std::greater<>> open(stores.begin(), stores.end());
    while (!open.empty()) {
      ValueId v = *open.begin(); // operands have smaller ids: each value is met once
      open.erase(open.begin());
      step.body.push_back(v);
      for (ValueId operand : graph_.find_producer(v)->operands) {
        if (group_of_[operand] == index || is_computed_again(operand, elements)) {
          open.insert(operand);
        } else if (graph_.values[operand].kind != ValueKind::kScalar) {
          need(operand);
        }
      }
    }
    std::reverse(step.body.begin(), step.body.end());
    return step;
  }

  const Graph& graph_;
  const std::vector<Place>& places_;
  bool enabled_;
  Recompute recompute_;
  std::vector<Group> groups_;
  std::vector<int> group_of_; // by value; -1: parameters, scalars and views
  std::vector<int> ready_; // by value: the first group that may use it, without or with memory
  std::vector<bool> after_reduce_; // by value: depends on a reduction of its own group
  std::vector<std::vector<int>> readers_; // by value: groups that use it, ascending by time of entry
  std::vector<bool> needed_; // by value: must be stored
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

std::vector<Step> fuse(const LaidOutGraph& laid_out, bool enabled) {
  return Fusion(laid_out, enabled).run();
}

} // namespace torch_xla::cpu
