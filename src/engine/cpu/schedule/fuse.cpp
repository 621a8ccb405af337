// The backward half of fusion: starting at the outputs, groups get their lists of stored values and become steps.
#include "engine/cpu/schedule/fuse.h"

#include <algorithm>
#include <map>
#include <queue>

namespace torch_xla::cpu {
namespace {

// Walks backwards, so that all readers of a group have listed their loads before it. A group does not store values that only it reads.
class StepWriter {
 public:
  StepWriter(const LaidOutGraph& laid_out, const Recompute& recompute, const Groups& groups, bool enabled)
      : graph_(laid_out.graph),
        places_(laid_out.places),
        recompute_(recompute),
        groups_(groups),
        enabled_(enabled),
        needed_(graph_.values.size()) {}

  std::vector<Step> run() {
    for (ValueId v : graph_.outputs) {
      need(v);
    }
    std::vector<Step> steps;
    for (size_t i = groups_.list.size(); i-- > 0;) {
      if (groups_.list[i].kind == StepKind::kKernel) {
        emit_kernels(groups_.list[i], static_cast<int>(i), steps);
      } else {
        emit_call(groups_.list[i], steps);
      }
    }
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

 private:
  void need(ValueId v) {
    if (v != kNoValue) {
      needed_[places_[v].root] = true;
    }
  }

  // A call without used results is left out, with the values that only it reads; collectives stay, as other replicas need them.
  void emit_call(const Group& group, std::vector<Step>& steps) {
    const Node& node = graph_.nodes[group.node];
    bool used = std::any_of(group.values.begin(), group.values.end(), [&](ValueId v) { return needed_[v]; });
    if (!used && !(node.op->traits & kCollective)) {
      return;
    }
    Step step;
    step.kind = group.kind;
    step.node = group.node;
    for (ValueId v : node.operands) {
      need(v);
    }
    steps.push_back(std::move(step));
  }

  // One kernel, except if the reduction that joined values of two shapes has no use: then one for each shape.
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

  // Whether the step recomputes the value instead of loading it from its group.
  bool is_computed_again(ValueId v, const Step& step) const {
    return graph_.find_producer(v) &&
        (enabled_ ? recompute_.is_cheap_in(v, num_elements(step.domain), differs_in_vectors(v, step)) : recompute_.is_free(v));
  }

  // Whether the value differs between neighbours of the step's innermost loop. In a row kernel a small value counts as a value of the row.
  bool differs_in_vectors(ValueId v, const Step& step) const {
    if (step.form == KernelForm::kColumn) {
      return graph_.type(v).numel() > 1; // of columns
    }
    return step.form == KernelForm::kPointwise && extent_along(innermost(step.stores.front()), v) > 1;
  }

  // The dim with adjacent elements in memory, counted from the last dim.
  size_t innermost(ValueId v) const {
    const Dims& dims = graph_.type(v).dims;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (places_[v].strides[d] == 1 && dims[d] > 1) {
        return dims.size() - d;
      }
    }
    return 1;
  }

  int64_t extent_along(size_t dim, ValueId v) const {
    const Dims& dims = graph_.type(v).dims;
    return dim > dims.size() ? 1 : dims[dims.size() - dim];
  }

  Prim prim_of(ValueId v) const {
    return graph_.find_producer(v)->op->prim;
  }

  // The stores and everything that they depend on, back to loads; other groups must store the loaded values.
  Step make_step(const Group& group, int index, const std::vector<ValueId>& stores) {
    Step step;
    step.domain = group.domain;
    step.reduced = group.reduced;
    step.form = !group.reduced ? KernelForm::kPointwise : group.column ? KernelForm::kColumn : KernelForm::kRow;
    step.stores = stores;
    std::priority_queue<ValueId> open(stores.begin(), stores.end());
    while (!open.empty()) {
      ValueId v = open.top(); // operands have smaller ids: duplicates come out one after the other
      open.pop();
      if (!step.body.empty() && step.body.back() == v) {
        continue;
      }
      step.body.push_back(v);
      for (ValueId operand : graph_.find_producer(v)->operands) {
        if (groups_.of_value[operand] == index || is_computed_again(operand, step)) {
          open.push(operand);
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
  const Recompute& recompute_;
  const Groups& groups_;
  bool enabled_;
  std::vector<bool> needed_; // by value: must be stored
};

} // namespace

std::vector<Step> fuse(const LaidOutGraph& laid_out, const Recompute& recompute, const Groups& groups, bool enabled) {
  return StepWriter(laid_out, recompute, groups, enabled).run();
}

} // namespace torch_xla::cpu
