// The rules of groups and their steps: domains, reductions, and values that exist before they are read.
#include <algorithm>
#include <deque>

#include "engine/cpu/cost.h"
#include "engine/cpu/schedule/verifier.h"
#include "engine/cpu/schedule/verify.h"

namespace torch_xla::cpu {
namespace {

// Bit d: the reduction runs over dimension d of a domain of that rank.
uint32_t reduced_mask(const Graph& graph, const Node& node, size_t rank) {
  size_t own_rank = graph.type(node.operands[0]).dims.size();
  uint32_t mask = 0;
  for (int64_t d : std::get<Dims>(node.attrs[0])) {
    mask |= 1u << (static_cast<size_t>(d) + rank - own_rank);
  }
  return mask;
}

// The dims that a primitive loops over.
const Dims& loop_dims(const Graph& graph, const Node& node) {
  return graph.type(is_reduce(node.op->prim) ? node.operands[0] : node.result()).dims;
}

// ---- Groups ----

class GroupVerifier : private Verifier {
 public:
  GroupVerifier(const Schedule& schedule, const char* stage)
      : Verifier(stage, schedule), groups_(schedule.groups), seen_(graph_.values.size()), after_reduce_(graph_.values.size()) {}

  void run() {
    check(groups_.of_value.size() == graph_.values.size(), groups_.of_value.size(), " groups for ", graph_.values.size(), " values");
    for (size_t g = 0; g < groups_.list.size(); ++g) {
      check_members(static_cast<int>(g));
    }
    for (const Node& node : graph_.nodes) {
      enter("%", node.result());
      if (node.op->kind == OpKind::kView) {
        check(groups_.of_value[node.result()] < 0, "a view is in a group");
      } else {
        check_node(node);
      }
    }
  }

 private:
  void check_members(int g) {
    const Group& group = groups_.list[g];
    enter("group ", g);
    check(group.values.size() <= kMaxValues || group.kind != StepKind::kKernel, group.values.size(), " values are too many");
    for (ValueId v : group.values) {
      check(groups_.of_value[v] == g, "holds %", v, ", which is of group ", groups_.of_value[v]);
      check(!seen_[v], "holds %", v, " twice");
      seen_[v] = true;
    }
  }

  void check_node(const Node& node) {
    int g = groups_.of_value[node.result()];
    for (int32_t i = 0; i < node.num_results; ++i) {
      check(seen_[node.result(i)] && groups_.of_value[node.result(i)] == g, "is in no group, or its results in several");
    }
    const Group& group = groups_.list[g];
    StepKind kind = node.op->kind == OpKind::kPrim ? StepKind::kKernel
        : node.op->kind == OpKind::kLibrary        ? StepKind::kLibrary
                                                   : StepKind::kUpdate;
    check(group.kind == kind, "is in group ", g, ", which is of another kind");
    for (ValueId v : node.operands) {
      check_operand(g, v);
    }
    if (kind == StepKind::kKernel) {
      check_domain(node, g);
    }
  }

  // Values that a kernel does not compute are in memory before it runs.
  void check_operand(int g, ValueId v) const {
    if (v == kNoValue || groups_.of_value[v] == g || s_.recompute.is_free(v)) {
      return;
    }
    int stores = groups_.of_value[root(v)];
    check(stores < g, "is in group ", g, ", but its operand %", v, " is stored by group ", stores);
  }

  void check_domain(const Node& node, int g) {
    const Group& group = groups_.list[g];
    Dims dims = strip_leading_ones(loop_dims(graph_, node));
    bool fits = dims.size() <= group.domain.size();
    dims = fits ? align_dims(dims, group.domain.size()) : dims;
    bool element = dims == group.domain;
    check(fits && (element || dims == row_dims(group.domain, group.reduced)), "does not fit the domain of group ", g);
    if (is_reduce(node.op->prim)) {
      check(element && reduced_mask(graph_, node, dims.size()) == group.reduced, "reduces other dims than group ", g);
    }
    // A column's result is known only after the sweep of the element values.
    bool after = uses_reduction(node, g);
    check(!(group.column && element && after), "uses a reduction of group ", g, " in the sweep that computes it");
    after_reduce_[node.result()] = after || is_reduce(node.op->prim);
  }

  bool uses_reduction(const Node& node, int g) const {
    return std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId v) { return groups_.of_value[v] == g && after_reduce_[v]; });
  }

  const Groups& groups_;
  std::vector<bool> seen_; // by value: in the list of a group
  std::vector<bool> after_reduce_; // by value: depends on a reduction of its own group
};

// ---- Steps ----

class StepVerifier : private Verifier {
 public:
  StepVerifier(const Schedule& schedule, const char* stage)
      : Verifier(stage, schedule), stored_(graph_.values.size()), body_of_(graph_.values.size(), -1) {}

  void run() {
    for (ValueId v : graph_.parameters) {
      stored_[v] = true;
    }
    for (size_t i = 0; i < s_.steps.size(); ++i) {
      const Step& step = s_.steps[i];
      enter("step ", i);
      check_beside(step);
      step.kind == StepKind::kKernel ? check_kernel(step, static_cast<int>(i)) : check_call(step, graph_.nodes[step.node]);
    }
    check(started_.empty(), "step ", s_.steps.size(), " is the end, and a call was not waited for");
    check(beside_ == 0, "step ", s_.steps.size(), " is the end, and should run beside the one before it");
    for (ValueId v : graph_.outputs) {
      enter("output %", v);
      check(stored_[root(v)], "no step stores it");
    }
  }

 private:
  void check_read(ValueId v) const {
    check(stored_[root(v)], "reads %", v, ", which no step before it stores");
  }

  void store(ValueId v) {
    check(!stored_[v], "stores %", v, ", which is stored already");
    stored_[v] = true;
  }

  // Calls beside each other stand in a row.
  void check_beside(const Step& step) {
    bool in_row = step.beside == 0 || step.kind == StepKind::kLibrary;
    check(in_row && (beside_ == 0 || step.beside == beside_ - 1), "runs beside ", step.beside, " others, behind one with ", beside_);
    beside_ = step.beside;
  }

  void check_call(const Step& step, const Node& node) {
    if (node.op->traits & kCollective) {
      check_collective(step);
    }
    for (ValueId v : node.operands) {
      if (v != kNoValue && !is(v, ValueKind::kScalar)) {
        check_read(v);
      }
    }
    for (int32_t i = 0; i < node.num_results && step.kind != StepKind::kStart; ++i) {
      given_.push_back(node.result(i));
    }
    for (; step.beside == 0 && !given_.empty(); given_.pop_back()) {
      store(given_.back());
    }
  }

  // Collectives run, and are waited for, in the order of the graph.
  void check_collective(const Step& step) {
    if (step.kind == StepKind::kWait) {
      check(!started_.empty() && started_.front() == step.node, "does not wait for the call that was started first");
      started_.pop_front();
      return;
    }
    check(step.node > last_collective_, "runs before a collective that is behind it in the graph");
    last_collective_ = step.node;
    check(started_.empty() || step.kind == StepKind::kStart, "runs while another collective is not waited for");
    if (step.kind == StepKind::kStart) {
      started_.push_back(step.node);
    }
  }

  void check_kernel(const Step& step, int index) {
    check((step.form == KernelForm::kPointwise) == (step.reduced == 0), "its form is not that of its reductions");
    check(std::is_sorted(step.body.begin(), step.body.end()), "its body is not in the order of the graph");
    for (ValueId v : step.body) {
      body_of_[v] = index;
      check_body(step, v, index);
    }
    for (ValueId v : step.stores) {
      check(body_of_[v] == index, "stores %", v, ", which it does not compute");
      check(root(v) == v, "stores %", v, ", which is a view");
      store(v);
    }
  }

  void check_body(const Step& step, ValueId v, int index) const {
    const Node* node = graph_.find_producer(v);
    check(node && node->op->kind == OpKind::kPrim, "computes %", v, ", which is no primitive");
    for (ValueId operand : node->operands) {
      if (body_of_[operand] != index && !is(operand, ValueKind::kScalar)) {
        check_read(operand);
      }
    }
    Dims dims = strip_leading_ones(loop_dims(graph_, *node));
    check(
        dims.size() <= step.domain.size() && reaches(align_dims(dims, step.domain.size()), step.domain),
        "%",
        v,
        " does not fit its domain");
    if (is_reduce(node->op->prim)) {
      bool same = align_dims(dims, step.domain.size()) == step.domain && reduced_mask(graph_, *node, step.domain.size()) == step.reduced;
      check(same, "%", v, " reduces other dims than the step");
    }
  }

  static bool reaches(const Dims& dims, const Dims& domain) {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] != 1 && dims[d] != domain[d]) {
        return false;
      }
    }
    return true;
  }

  std::vector<bool> stored_; // by root: lies in memory when the step begins
  std::vector<int> body_of_; // by value: the last step that computes it
  std::deque<int32_t> started_; // nodes that are not waited for yet
  int32_t last_collective_ = -1; // node
  int32_t beside_ = 0; // Step::beside of the step before
  std::vector<ValueId> given_; // by calls that run beside each other
};

} // namespace

void verify_groups(const Schedule& schedule, const char* stage) {
  GroupVerifier(schedule, stage).run();
}

void verify_steps(const Schedule& schedule, const char* stage) {
  StepVerifier(schedule, stage).run();
}

} // namespace torch_xla::cpu
