// The rules of accesses: what each step reads and writes, whose memory that is, and whether it can fail, as its nodes say.
#include <algorithm>
#include <iterator>

#include "engine/cpu/library/call.h"
#include "engine/cpu/schedule/verifier.h"
#include "engine/cpu/schedule/verify.h"

namespace torch_xla::cpu {
namespace {

// The memory plan's verifier checks the in-place pairs in use, against the kernels.
class AccessVerifier : private Verifier {
 public:
  AccessVerifier(const Schedule& schedule, const char* stage) : Verifier(stage, schedule) {}

  void run() {
    check(s_.accesses.size() == s_.steps.size(), s_.accesses.size(), " accesses for ", s_.steps.size(), " steps");
    for (size_t i = 0; i < s_.steps.size(); ++i) {
      enter("step ", i);
      reads_.clear();
      switch (s_.steps[i].kind) {
        case StepKind::kKernel:
          check_kernel(s_.steps[i], s_.accesses[i]);
          break;
        case StepKind::kLibrary:
        case StepKind::kStart:
          check_call(graph_.nodes[s_.steps[i].node], s_.accesses[i]);
          break;
        case StepKind::kUpdate:
          check_update(graph_.nodes[s_.steps[i].node], s_.accesses[i]);
          break;
        case StepKind::kWait:
          check_lists(s_.accesses[i], {});
          check_kind(s_.accesses[i], /*adopts=*/false, /*can_fail=*/true, /*is_update=*/false);
          break;
      }
      check_end(i);
    }
  }

 private:
  // A kernel writes into planned memory, and no value that it reads makes it fail.
  void check_kernel(const Step& step, const StepAccess& access) {
    for (ValueId v : step.body) {
      for (ValueId operand : graph_.find_producer(v)->operands) {
        if (!std::binary_search(step.body.begin(), step.body.end(), operand) && !is(operand, ValueKind::kScalar)) {
          reads_.push_back(root(operand));
        }
      }
    }
    check_lists(access, step.stores);
    check_kind(access, /*adopts=*/false, /*can_fail=*/false, /*is_update=*/false);
  }

  void check_call(const Node& node, const StepAccess& access) {
    std::vector<ValueId> results;
    for (int32_t i = 0; i < node.num_results; ++i) {
      if (graph_.type(node.result(i)).dtype != DType::Undefined) {
        results.push_back(node.result(i));
      }
    }
    read_operands(node);
    check_lists(access, std::move(results));
    bool adopts = !writes_into(s_.laid_out, node, s_.fusion);
    check_kind(access, adopts, adopts || (node.op->traits & kChecksValues), /*is_update=*/false);
    check(access.can_be_undone == is_part(node.op->written), "writes a part, but is planned otherwise");
  }

  void check_update(const Node& node, const StepAccess& access) {
    read_operands(node);
    check_lists(access, {node.result()});
    check_kind(access, /*adopts=*/false, /*can_fail=*/false, /*is_update=*/true);
  }

  void check_end(size_t index) const {
    int32_t until = s_.accesses[index].until;
    if (s_.steps[index].kind != StepKind::kStart) {
      check(until == static_cast<int32_t>(index) + s_.steps[index].beside, "ends with step ", until);
      return;
    }
    bool exists = until > static_cast<int32_t>(index) && until < static_cast<int32_t>(s_.steps.size());
    check(exists && is_wait_for(s_.steps[until], s_.steps[index]), "ends with step ", until, ", which does not wait for it");
  }

  static bool is_wait_for(const Step& wait, const Step& start) {
    return wait.kind == StepKind::kWait && wait.node == start.node;
  }

  void read_operands(const Node& node) {
    for (ValueId v : node.operands) {
      if (v != kNoValue && !is(v, ValueKind::kScalar)) {
        reads_.push_back(root(v));
      }
    }
  }

  void check_lists(const StepAccess& access, std::vector<ValueId> writes) {
    check_list("reads", access.reads, reads_);
    check_list("writes", access.writes, std::move(writes));
  }

  void check_list(const char* what, std::vector<ValueId> said, std::vector<ValueId> is) const {
    for (std::vector<ValueId>* list : {&said, &is}) {
      std::sort(list->begin(), list->end());
    }
    bool once = std::adjacent_find(said.begin(), said.end()) == said.end();
    is.erase(std::unique(is.begin(), is.end()), is.end());
    std::vector<ValueId> differ;
    std::set_symmetric_difference(said.begin(), said.end(), is.begin(), is.end(), std::back_inserter(differ));
    check(once && differ.empty(), what, " other values than its nodes do: %", differ.empty() ? kNoValue : differ.front());
  }

  void check_kind(const StepAccess& access, bool adopts, bool can_fail, bool is_update) const {
    check(access.adopts == adopts, adopts ? "gets its memory from ATen" : "writes into planned memory", ", but is planned otherwise");
    check(access.can_fail == can_fail, can_fail ? "can" : "cannot", " fail, but is planned otherwise");
    check(access.is_update == is_update, is_update ? "writes a part" : "writes the whole", ", but is planned otherwise");
  }

  std::vector<ValueId> reads_; // of the step under test: roots
};

} // namespace

void verify_accesses(const Schedule& schedule, const char* stage) {
  AccessVerifier(schedule, stage).run();
}

} // namespace torch_xla::cpu
