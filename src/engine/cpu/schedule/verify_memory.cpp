// The rules of a memory plan, checked by a walk over the steps with the contents of each memory.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "engine/cpu/library/call.h"
#include "engine/cpu/schedule/verifier.h"
#include "engine/cpu/schedule/verify.h"

namespace torch_xla::cpu {
namespace {

class MemoryVerifier : private Verifier {
 public:
  MemoryVerifier(const Schedule& schedule, const char* stage)
      : Verifier(stage, schedule),
        plan_(schedule.plan),
        holds_(plan_.memories.size(), kNoValue),
        last_write_(plan_.memories.size(), -1),
        complete_(plan_.memories.size(), -1),
        last_use_(plan_.memories.size(), -1),
        parameter_memory_(plan_.memories.size(), kNoValue) {}

  void run() {
    check(plan_.memory_of.size() == graph_.values.size(), plan_.memory_of.size(), " memories for ", graph_.values.size(), " values");
    check(plan_.taken.size() == steps() && plan_.released.size() == steps(), "its lists are not parallel to the steps");
    enter_parameters();
    for (size_t i = 0; i < steps(); ++i) {
      enter("step ", i);
      check_step(static_cast<int32_t>(i));
    }
    check_outputs();
    check_homes();
    check_taken();
    check_released();
    check_arena();
    check_failures();
  }

 private:
  size_t steps() const {
    return s_.steps.size();
  }
  const Memory& memory(int32_t m) const {
    return plan_.memories[static_cast<size_t>(m)];
  }
  bool is_parameter(int32_t m) const {
    return memory(m).home == Memory::Home::kParameter;
  }

  void enter_parameters() {
    for (size_t i = 0; i < graph_.parameters.size(); ++i) {
      ValueId v = graph_.parameters[i];
      enter("parameter ", i);
      int32_t m = plan_.memory_of[v];
      check(m >= 0 && is_parameter(m) && memory(m).parameter == static_cast<int32_t>(i), "%", v, " does not lie in the caller's memory");
      holds_[m] = v;
      parameter_memory_[m] = v;
    }
  }

  // ---- Steps ----

  void check_step(int32_t step) {
    for (ValueId v : s_.accesses[step].writes) {
      check_free(v, step);
    }
    find_reads(s_.steps[step], s_.kernels[step]);
    for (auto [v, count] : reads_) {
      check_alive(v, step);
      use(plan_.memory_of[v], step);
    }
    for (ValueId v : s_.accesses[step].writes) {
      check_write(v, step);
    }
  }

  // A started call uses its memory until its wait.
  void check_free(ValueId v, int32_t step) const {
    int32_t m = plan_.memory_of[v];
    check(m < 0 || last_use_[m] < step, "writes %", v, " to memory ", m, ", which is in use to step ", m < 0 ? -1 : last_use_[m]);
  }

  void use(int32_t m, int32_t step) {
    check_lifetime(m, s_.accesses[step].until);
    last_use_[m] = std::max(last_use_[m], s_.accesses[step].until);
  }

  // Found from the step itself, not from the accesses that the plan was made from.
  void find_reads(const Step& step, const BuiltKernel& kernel) {
    reads_.clear();
    in_place_.clear();
    if (step.kind != StepKind::kKernel && step.kind != StepKind::kWait) {
      for (ValueId v : graph_.nodes[step.node].operands) {
        if (v != kNoValue && !is(v, ValueKind::kScalar)) {
          ++reads_[root(v)];
        }
      }
    }
    for (const KernelOperand& operand : kernel.operands) {
      if (!operand.written) {
        ++reads_[operand.root];
      }
    }
    for (auto [loaded, stored] : kernel.in_place) {
      ++in_place_[{kernel.operands[loaded].root, kernel.operands[stored].root}];
    }
  }

  void check_alive(ValueId v, int32_t step) const {
    int32_t m = plan_.memory_of[v];
    check(m >= 0, "reads %", v, ", which has no memory");
    check(holds_[m] != kNoValue, "reads %", v, ", but nothing is stored in memory ", m, " yet");
    check(holds_[m] == v, "reads %", v, ", but memory ", m, " holds %", holds_[m], " since step ", last_write_[m]);
    check(complete_[m] < step, "reads %", v, ", which is complete after step ", complete_[m]);
    check_lifetime(m, step);
  }

  void check_lifetime(int32_t m, int32_t step) const {
    bool lives = memory(m).first <= step && step <= memory(m).last;
    check(lives, "uses memory ", m, ", which lives from step ", memory(m).first, " to ", memory(m).last);
  }

  void check_write(ValueId v, int32_t step) {
    int32_t m = plan_.memory_of[v];
    check(m >= 0, "writes %", v, ", which has no memory");
    check(!is_parameter(m), "writes %", v, " to a parameter's memory, which only donors give");
    check(memory(m).bytes == bytes(v), "writes %", v, " of ", bytes(v), " bytes to memory ", m, " of ", memory(m).bytes);
    check_lifetime(m, step);
    check(last_write_[m] < step, "writes %", v, " and %", holds_[m], " to memory ", m);
    check(holds_[m] == kNoValue || may_replace(holds_[m], v, step), "writes %", v, " over %", holds_[m], ", which it reads elsewhere");
    if (memory(m).first == step) {
      check_donors(v, step);
    }
    holds_[m] = v;
    check(!memory(m).kept || s_.accesses[step].converts, "writes %", v, " to memory ", m, ", which is kept for later runs");
    last_write_[m] = step;
    complete_[m] = s_.accesses[step].until;
    use(m, step);
  }

  // Whether the step may write `to` over `from`. Later readers of `from` fail their own check, as they find another value.
  bool may_replace(ValueId from, ValueId to, int32_t step) const {
    auto found = reads_.find(from);
    int reads = found == reads_.end() ? 0 : found->second;
    if (reads == 0) {
      return true;
    }
    switch (s_.steps[step].kind) {
      case StepKind::kKernel: { // each load is at the addresses of the store
        auto pairs = in_place_.find({from, to});
        return pairs != in_place_.end() && pairs->second == reads;
      }
      case StepKind::kUpdate: // the source does not overlap the overwritten memory
        return reads == 1 && from == root(graph_.nodes[s_.steps[step].node].operands[0]);
      case StepKind::kLibrary:
      case StepKind::kStart:
        return reads == 1 &&
            (is_handed_on(graph_.nodes[s_.steps[step].node], from, to) || reads_in_order(graph_.nodes[s_.steps[step].node], from));
      case StepKind::kWait:
        return false;
    }
    return false;
  }

  // Whether a barrier, or a call that writes a part of operand 0, keeps the elements at their addresses.
  bool is_handed_on(const Node& node, ValueId from, ValueId to) const {
    int32_t i = to - node.first_result;
    bool hands_on = node.op->written == Written::kNone || (is_part(node.op->written) && i == 0);
    return hands_on && node.operands[i] == from && s_.laid_out.places[from].strides == s_.laid_out.places[to].strides;
  }

  // Operand 0 is the whole value, row by row as the result will be.
  bool reads_in_order(const Node& node, ValueId from) const {
    const Place& place = places_[node.operands[0]];
    const Dims& dims = graph_.type(node.operands[0]).dims;
    return (node.op->traits & kCollective) && place.root == from && place.offset == 0 && place.moved_by < 0 &&
        span(node.operands[0]) == span(from) && same_strides(dims, place.strides, contiguous_strides(dims));
  }

  // At run time the memory may be that of a donor, from this step on.
  void check_donors(ValueId v, int32_t step) const {
    for (int32_t donor : memory(plan_.memory_of[v]).donors) {
      ValueId given = parameter_memory_[donor];
      check(given != kNoValue, "%", v, " takes over memory ", donor, ", which is no parameter");
      check(
          !memory(donor).is_output && memory(donor).last == s_.accesses[step].until,
          "%",
          v,
          " takes over %",
          given,
          ", which does not end at the step");
      check(memory(donor).bytes == bytes(v), "%", v, " takes over %", given, ", which has another size");
      check(may_replace(given, v, step), "writes %", v, " over %", given, ", which it reads elsewhere");
    }
  }

  // ---- Memories ----

  void check_outputs() const {
    for (ValueId v : graph_.outputs) {
      int32_t m = plan_.memory_of[root(v)];
      check(m >= 0 && holds_[m] == root(v), "output %", v, " is lost");
      check(memory(m).is_output && memory(m).last == static_cast<int32_t>(steps()), "memory ", m, " of output %", v, " ends with the run");
      check(memory(m).home != Memory::Home::kArena, "output %", v, " lies in the arena");
    }
  }

  void check_homes() {
    for (size_t i = 0; i < plan_.memories.size(); ++i) {
      auto m = static_cast<int32_t>(i);
      enter("memory ", m);
      bool adopts = !is_parameter(m) && s_.accesses[memory(m).first].adopts;
      check(adopts == (memory(m).home == Memory::Home::kAdopted), "its home does not fit its first step's results");
      check(last_use_[m] <= memory(m).last, "is used at step ", last_use_[m], ", but lives to step ", memory(m).last);
      std::set<int32_t> donors(memory(m).donors.begin(), memory(m).donors.end());
      check(donors.size() == memory(m).donors.size(), "names a donor twice");
    }
  }

  // Blocks of outputs, and memories that a donor may provide.
  void check_taken() {
    check_once(plan_.taken, "taken", [&](int32_t m) {
      bool taken = memory(m).home == Memory::Home::kBlock || !memory(m).donors.empty();
      return taken ? memory(m).first : -1;
    });
  }

  // The run's own memories, except the arena, and inputs are released exactly once, at their last use.
  void check_released() {
    check_once(plan_.released, "released", [&](int32_t m) {
      bool owned = memory(m).home != Memory::Home::kArena || !memory(m).donors.empty();
      return owned && memory(m).last < static_cast<int32_t>(steps()) ? memory(m).last : -1;
    });
  }

  // Each memory is in the list of the step that `when` says, -1 being none, and in no other.
  template <typename F>
  void check_once(const std::vector<std::vector<int32_t>>& lists, const char* what, F when) {
    std::vector<int32_t> at(plan_.memories.size(), -1);
    for (size_t i = 0; i < lists.size(); ++i) {
      enter("step ", i);
      for (int32_t m : lists[i]) {
        check(at[m] < 0, "memory ", m, " is ", what, " twice");
        at[m] = static_cast<int32_t>(i);
      }
    }
    for (size_t i = 0; i < at.size(); ++i) {
      auto m = static_cast<int32_t>(i);
      enter("memory ", m);
      check(at[i] == when(m), "is ", what, " at step ", at[i], ", not at step ", when(m));
    }
  }

  // In the order of their starts, each against the live ones, by offset.
  void check_arena() {
    std::vector<int32_t> order;
    for (size_t m = 0; m < plan_.memories.size(); ++m) {
      if (plan_.memories[m].home == Memory::Home::kArena) {
        order.push_back(static_cast<int32_t>(m));
      }
    }
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return memory(a).first < memory(b).first; });
    std::map<int64_t, int32_t> live; // by offset
    std::multimap<int32_t, int64_t> ends; // offsets by last step
    for (int32_t m : order) {
      for (; !ends.empty() && ends.begin()->first < memory(m).first; ends.erase(ends.begin())) {
        live.erase(ends.begin()->second);
      }
      check_room(m, live);
      live.emplace(memory(m).offset, m);
      ends.emplace(memory(m).last, memory(m).offset);
    }
  }

  void check_room(int32_t m, const std::map<int64_t, int32_t>& live) {
    enter("memory ", m);
    auto end = [&](int32_t i) { return memory(i).offset + std::max<int64_t>(memory(i).bytes, 1); };
    check(memory(m).offset >= 0 && end(m) <= plan_.arena_bytes, "ends at byte ", end(m), " of ", plan_.arena_bytes);
    auto next = live.lower_bound(memory(m).offset);
    bool fits_next = next == live.end() || end(m) <= next->first;
    check(fits_next, "overlaps memory ", fits_next ? -1 : next->second, ", which lives at the same time");
    bool fits_before = next == live.begin() || end(std::prev(next)->second) <= memory(m).offset;
    check(fits_before, "overlaps memory ", fits_before ? -1 : std::prev(next)->second, ", which lives at the same time");
  }

  // ---- Restored memory of a failed run ----

  bool can_be_undone(const Step& step) const {
    return step.kind == StepKind::kUpdate || (step.kind == StepKind::kLibrary && is_part(graph_.nodes[step.node].op->written));
  }

  void check_failures() {
    int32_t last = -1;
    for (size_t i = 0; i < steps(); ++i) {
      last = s_.accesses[i].can_fail ? static_cast<int32_t>(i) : last;
    }
    check(plan_.last_fallible == last, "step ", last, " is the last that can fail, not step ", plan_.last_fallible);
    for (int32_t i = 0; i <= last; ++i) {
      enter("step ", i);
      for (ValueId v : s_.accesses[i].writes) {
        bool undone = can_be_undone(s_.steps[i]) || !memory(plan_.memory_of[v]).undoable;
        check(undone, "writes %", v, ", which cannot be undone, to memory ", plan_.memory_of[v]);
      }
    }
  }

  const MemoryPlan& plan_;
  std::vector<ValueId> holds_; // by memory: its present value
  std::vector<int32_t> last_write_; // by memory: the step that wrote its value; -1: the caller
  std::vector<int32_t> complete_; // by memory: the end of that step
  std::vector<int32_t> last_use_; // by memory: the end of the last step so far that reads or writes it
  // Of the step under test: how often it reads each root, and how many of these reads are at the addresses of a store.
  std::map<ValueId, int> reads_;
  std::map<std::pair<ValueId, ValueId>, int> in_place_;
  std::vector<ValueId> parameter_memory_; // by memory: the parameter there at the start of the run
};

} // namespace

void verify_memory(const Schedule& schedule, const char* stage) {
  MemoryVerifier(schedule, stage).run();
}

} // namespace torch_xla::cpu
