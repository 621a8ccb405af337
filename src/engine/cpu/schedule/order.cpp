// Moves steps for the sake of collectives, and places the waits for these.
#include "engine/cpu/schedule/order.h"

#include <algorithm>
#include <numeric>

namespace torch_xla::cpu {
namespace {

class Ordering {
 public:
  Ordering(const LaidOutGraph& laid_out, const std::vector<Step>& steps)
      : graph_(laid_out.graph),
        places_(laid_out.places),
        steps_(steps),
        writer_(graph_.values.size(), -1),
        number_(graph_.values.size(), 0) {}

  std::vector<Step> run() {
    num_collectives_ = static_cast<size_t>(std::count_if(steps_.begin(), steps_.end(), [&](const Step& s) { return is_collective(s); }));
    if (num_collectives_ == 0) {
      return steps_;
    }
    find_reads();
    for (size_t s : new_order()) {
      add(steps_[s], reads_[s]);
    }
    wait_for(started_.size());
    return std::move(ordered_);
  }

 private:
  bool is_collective(const Step& step) const {
    return step.kind == StepKind::kLibrary && (graph_.nodes[step.node].op->traits & kCollective);
  }

  // ---- Dependencies ----

  void find_reads() {
    reads_.resize(steps_.size());
    for (size_t s = 0; s < steps_.size(); ++s) {
      const Step& step = steps_[s];
      if (step.kind == StepKind::kKernel) {
        for (ValueId v : step.body) {
          add_reads(graph_.find_producer(v)->operands, step.body, reads_[s]);
        }
        set_writer(step.stores, static_cast<int>(s));
      } else {
        const Node& node = graph_.nodes[step.node];
        add_reads(node.operands, {}, reads_[s]);
        std::vector<ValueId> results(static_cast<size_t>(node.num_results));
        std::iota(results.begin(), results.end(), node.result());
        set_writer(results, static_cast<int>(s));
      }
    }
  }

  template <typename Operands>
  void add_reads(const Operands& operands, const std::vector<ValueId>& body, std::vector<ValueId>& reads) const {
    for (ValueId v : operands) {
      if (v != kNoValue && !std::binary_search(body.begin(), body.end(), v)) {
        reads.push_back(places_[v].root);
      }
    }
  }

  void set_writer(const std::vector<ValueId>& values, int step) {
    for (ValueId v : values) {
      writer_[v] = step;
    }
  }

  // Not if it takes memory early that is needed late: results that are larger than their operands, or that coexist with a parameter.
  bool may_move(const Node& node) const {
    int64_t bytes = 0;
    for (ValueId v : node.operands) {
      if (v == kNoValue || graph_.values[places_[v].root].kind != ValueKind::kResult) {
        return false;
      }
      bytes += graph_.type(v).nbytes();
    }
    for (int32_t i = 0; i < node.num_results; ++i) {
      bytes -= graph_.type(node.result(i)).nbytes();
    }
    return bytes >= 0;
  }

  // By step: the first collective, in order, that needs it; the number of collectives if none does. A movable collective needs its
  // dependencies, any other all steps before it.
  std::vector<size_t> find_needed() const {
    std::vector<size_t> needed(steps_.size(), num_collectives_);
    size_t collective = num_collectives_;
    size_t needs_all = num_collectives_;
    for (size_t s = steps_.size(); s-- > 0;) {
      if (is_collective(steps_[s])) {
        needed[s] = --collective;
        needs_all = may_move(graph_.nodes[steps_[s].node]) ? needs_all : collective;
      }
      needed[s] = std::min(needed[s], needs_all);
      for (ValueId v : reads_[s]) {
        if (writer_[v] >= 0) {
          needed[writer_[v]] = std::min(needed[writer_[v]], needed[s]);
        }
      }
    }
    return needed;
  }

  // The steps that the first collective needs and the collective itself, then the further steps of the second one, and so on. Other steps
  // stay behind the collectives that preceded them.
  std::vector<size_t> new_order() const {
    std::vector<size_t> place = find_needed();
    size_t before = 0; // collectives
    for (size_t s = 0; s < steps_.size(); ++s) {
      if (place[s] == num_collectives_) {
        place[s] = before;
        for (ValueId v : reads_[s]) {
          place[s] = std::max(place[s], writer_[v] < 0 ? 0 : place[writer_[v]]);
        }
      }
      before += is_collective(steps_[s]) ? 1 : 0;
    }
    std::vector<size_t> order(steps_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place[a] < place[b]; });
    return order;
  }

  // ---- Starts and waits ----

  void add(const Step& step, const std::vector<ValueId>& reads) {
    size_t needed = 0;
    for (ValueId v : reads) {
      needed = std::max(needed, number_[v]);
    }
    wait_for(needed);
    ordered_.push_back(step);
    if (is_collective(step)) {
      ordered_.back().kind = StepKind::kStart;
      started_.push_back(step);
      const Node& node = graph_.nodes[step.node];
      for (int32_t i = 0; i < node.num_results; ++i) {
        number_[node.result(i)] = started_.size();
      }
    }
  }

  // Waits for the first `count` started collectives.
  void wait_for(size_t count) {
    if (count > num_waited_ && count == started_.size() && ordered_.back().kind == StepKind::kStart) {
      ordered_.pop_back(); // nothing runs beside it
      wait_for(count - 1);
      ordered_.push_back(started_[num_waited_++]);
    }
    for (; num_waited_ < count; ++num_waited_) {
      ordered_.push_back(started_[num_waited_]);
      ordered_.back().kind = StepKind::kWait;
    }
  }

  const Graph& graph_;
  const std::vector<Place>& places_;
  const std::vector<Step>& steps_;
  std::vector<int> writer_; // by root: the step that stores it; -1: none
  std::vector<std::vector<ValueId>> reads_; // by step: roots, and scalars
  std::vector<Step> ordered_;
  std::vector<Step> started_; // collectives, in their order
  size_t num_waited_ = 0; // of these
  size_t num_collectives_ = 0; // of all steps
  std::vector<size_t> number_; // by value: position of its collective in started_, from 1; 0: no collective's
};

} // namespace

std::vector<Step> order_steps(const LaidOutGraph& laid_out, const std::vector<Step>& steps) {
  return Ordering(laid_out, steps).run();
}

} // namespace torch_xla::cpu
