// Which library calls run beside each other.
#include "engine/cpu/schedule/beside.h"

#include <algorithm>

#include "engine/cpu/cost.h"
#include "engine/cpu/library/call.h"

namespace torch_xla::cpu {
namespace {

class Gathering {
 public:
  explicit Gathering(const LaidOutGraph& laid_out) : graph_(laid_out.graph), places_(laid_out.places), awaited_(graph_.values.size()) {}

  std::vector<Step> run(std::vector<Step> steps) {
    while (!steps.empty()) {
      std::vector<Step> later;
      for (Step& step : steps) {
        if (calls_.size() == kMaxCallsBeside || reads_awaited(step)) {
          set_awaited(step);
          later.push_back(std::move(step));
        } else if (is_gathered(step)) {
          set_awaited(step);
          calls_.push_back(std::move(step));
        } else {
          gathered_.push_back(std::move(step));
        }
      }
      add_calls();
      steps = std::move(later);
    }
    return std::move(gathered_);
  }

 private:
  bool is_gathered(const Step& step) const {
    return step.kind == StepKind::kLibrary && prefers_one_thread(graph_.nodes[step.node]);
  }

  bool reads_awaited(const Step& step) const {
    auto any = [&](const Node& node) {
      return std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId v) { return v != kNoValue && awaited_[places_[v].root]; });
    };
    if (step.kind != StepKind::kKernel) {
      return any(graph_.nodes[step.node]);
    }
    return std::any_of(step.body.begin(), step.body.end(), [&](ValueId v) { return any(*graph_.find_producer(v)); });
  }

  void set_awaited(const Step& step) {
    for (ValueId v : step.stores) {
      awaited_[v] = true;
    }
    for (int32_t i = 0; step.kind != StepKind::kKernel && i < graph_.nodes[step.node].num_results; ++i) {
      awaited_[graph_.nodes[step.node].result(i)] = true;
    }
  }

  void add_calls() {
    for (size_t i = 0; i < calls_.size(); ++i) {
      calls_[i].beside = static_cast<int32_t>(calls_.size() - 1 - i);
      gathered_.push_back(std::move(calls_[i]));
    }
    calls_.clear();
    awaited_.assign(awaited_.size(), false);
  }

  const Graph& graph_;
  const std::vector<Place>& places_;
  std::vector<bool> awaited_; // by root: its producer comes after all of gathered_
  std::vector<Step> calls_; // calls beside each other, after all of gathered_
  std::vector<Step> gathered_;
};

} // namespace

std::vector<Step> gather_calls(const LaidOutGraph& laid_out, const std::vector<Step>& steps) {
  auto is_collective = [&](const Step& step) {
    return step.kind != StepKind::kKernel && (laid_out.graph.nodes[step.node].op->traits & kCollective);
  };
  return std::any_of(steps.begin(), steps.end(), is_collective) ? steps : Gathering(laid_out).run(steps);
}

} // namespace torch_xla::cpu
