// Lifetimes in one walk over the steps, then offsets for temporaries, largest first.
#include "engine/cpu/schedule/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "engine/cpu/cost.h"
#include "ir/strides.h"

namespace torch_xla::cpu {
namespace {

constexpr int64_t kAlign = 64; // a cache line, and the widest vector

class MemoryPlanner {
 public:
  MemoryPlanner(const LaidOutGraph& laid_out, const std::vector<StepAccess>& steps)
      : graph_(laid_out.graph),
        places_(laid_out.places),
        steps_(steps),
        last_read_(graph_.values.size(), -1),
        in_use_until_(graph_.values.size(), -1),
        in_use_before_(graph_.values.size(), -1),
        is_output_(graph_.values.size()) {
    plan_.memory_of.assign(graph_.values.size(), -1);
  }

  MemoryPlan run() {
    find_lifetimes();
    add_parameters();
    for (size_t s = 0; s < steps_.size(); ++s) {
      add_writes(static_cast<int32_t>(s));
    }
    finish();
    place_in_arena();
    return std::move(plan_);
  }

 private:
  int32_t end() const {
    return static_cast<int32_t>(steps_.size());
  }

  void find_lifetimes() {
    for (size_t s = 0; s < steps_.size(); ++s) {
      if (steps_[s].can_fail) {
        plan_.last_fallible = static_cast<int32_t>(s);
      }
      for (ValueId v : steps_[s].reads) {
        last_read_[v] = static_cast<int32_t>(s);
        in_use_before_[v] = in_use_until_[v];
        in_use_until_[v] = std::max(in_use_until_[v], steps_[s].until);
      }
    }
    for (ValueId v : graph_.outputs) {
      is_output_[places_[v].root] = true;
      in_use_until_[places_[v].root] = end();
    }
  }

  void add_parameters() {
    for (size_t i = 0; i < graph_.parameters.size(); ++i) {
      ValueId v = graph_.parameters[i];
      Memory memory;
      memory.home = Memory::Home::kParameter;
      memory.bytes = bytes_of(v);
      memory.parameter = static_cast<int32_t>(i);
      memory.last = in_use_until_[v];
      memory.is_output = is_output_[v];
      add_memory(v, std::move(memory));
    }
  }

  int64_t bytes_of(ValueId v) const {
    const Type& type = graph_.type(v);
    return span_elements(type.dims, places_[v].strides) * static_cast<int64_t>(item_size(type.dtype));
  }

  void add_memory(ValueId v, Memory memory) {
    plan_.memory_of[v] = static_cast<int32_t>(plan_.memories.size());
    plan_.memories.push_back(std::move(memory));
  }

  // In the order of the steps, so that memory is planned before a value takes it over.
  void add_writes(int32_t step) {
    const StepAccess& access = steps_[step];
    std::vector<ValueId> taken_over; // each value's memory serves one result only
    for (ValueId v : access.writes) {
      if (access.adopts || !take_over(step, v, taken_over)) {
        Memory memory;
        memory.home = access.adopts ? Memory::Home::kAdopted : Memory::Home::kArena;
        memory.bytes = bytes_of(v);
        memory.first = step;
        memory.kept = is_kept(access);
        memory.donors = memory.kept ? std::vector<int32_t>() : find_donors(step, v, taken_over);
        memory.undoable = access.can_be_undone;
        add_memory(v, std::move(memory));
      }
      Memory& memory = plan_.memories[plan_.memory_of[v]];
      memory.undoable = memory.undoable && (access.can_be_undone || step > plan_.last_fallible);
      memory.last = std::max(access.until, in_use_until_[v]);
      memory.is_output = memory.is_output || is_output_[v];
    }
  }

  // Reading it takes no longer than making it again.
  bool is_kept(const StepAccess& access) const {
    auto add = [this](int64_t bytes, ValueId v) { return bytes + bytes_of(v); };
    const int64_t read = std::accumulate(access.reads.begin(), access.reads.end(), int64_t{0}, add);
    return access.converts && read >= kLeastKeptBytes &&
        std::accumulate(access.writes.begin(), access.writes.end(), int64_t{0}, add) <= read;
  }

  // Whether no step reads it afterwards, or beside this step: a call that was started before and is not waited for, or one beside it.
  bool dies_at(int32_t step, ValueId v) const {
    return last_read_[v] == step && in_use_before_[v] < step && !is_output_[v];
  }

  // Puts v into the memory of a value that the step reads for the last time: that memory is in the cache, and it saves a block. The
  // caller's memory is not the program's, but a run may get it (donors).
  bool take_over(int32_t step, ValueId v, std::vector<ValueId>& taken_over) {
    for (const auto& [from, to] : steps_[step].in_place) {
      bool own = graph_.values[from].kind == ValueKind::kResult;
      if (to == v && own && can_take(step, from, v, taken_over)) {
        plan_.memory_of[v] = plan_.memory_of[from];
        taken_over.push_back(from);
        return true;
      }
    }
    return false;
  }

  bool can_take(int32_t step, ValueId from, ValueId to, const std::vector<ValueId>& taken_over) const {
    return dies_at(step, from) && bytes_of(from) == bytes_of(to) && !plan_.memories[plan_.memory_of[from]].kept &&
        std::find(taken_over.begin(), taken_over.end(), from) == taken_over.end();
  }

  // Parameters that die here and that v may overwrite. A run takes the first one that is donated and not taken yet. Each result begins with
  // another one: an optimizer's step writes several results over as many parameters.
  std::vector<int32_t> find_donors(int32_t step, ValueId v, const std::vector<ValueId>& taken_over) const {
    std::vector<int32_t> donors;
    for (const auto& [from, to] : steps_[step].in_place) {
      if (to == v && graph_.values[from].kind == ValueKind::kParameter && can_take(step, from, v, taken_over)) {
        donors.push_back(plan_.memory_of[from]);
      }
    }
    if (!donors.empty()) {
      const std::vector<ValueId>& writes = steps_[step].writes;
      auto index = static_cast<size_t>(std::find(writes.begin(), writes.end(), v) - writes.begin());
      std::rotate(donors.begin(), donors.begin() + static_cast<ptrdiff_t>(index % donors.size()), donors.end());
    }
    return donors;
  }

  // A run takes all memory of the steps after the last fallible one at once: all of it would be in use together.
  bool has_own_block(const Memory& memory) const {
    return memory.bytes >= kOwnBlockBytes && memory.donors.empty() && memory.first <= plan_.last_fallible;
  }

  // Values that outlive the run get blocks of their own: they would keep the whole arena alive. So do large temporaries: their memory later
  // serves outputs and allocations of calls.
  void finish() {
    plan_.taken.resize(steps_.size());
    plan_.released.resize(steps_.size());
    for (size_t m = 0; m < plan_.memories.size(); ++m) {
      Memory& memory = plan_.memories[m];
      if (memory.home == Memory::Home::kArena && (memory.is_output || memory.kept || has_own_block(memory))) {
        memory.home = Memory::Home::kBlock;
      }
      if (memory.home == Memory::Home::kBlock || !memory.donors.empty()) {
        plan_.taken[memory.first].push_back(static_cast<int32_t>(m));
      }
      bool owned = memory.home != Memory::Home::kArena || !memory.donors.empty();
      if (owned && memory.last >= 0 && memory.last < end()) {
        plan_.released[memory.last].push_back(static_cast<int32_t>(m));
      }
    }
  }

  // Places each value, the largest first, at the lowest offset that is free while it lives: small ones fill the gaps that large ones leave.
  void place_in_arena() {
    std::vector<int32_t> order;
    for (size_t m = 0; m < plan_.memories.size(); ++m) {
      if (plan_.memories[m].home == Memory::Home::kArena) {
        order.push_back(static_cast<int32_t>(m));
      }
    }
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return plan_.memories[a].bytes > plan_.memories[b].bytes; });
    std::vector<const Memory*> placed; // ascending by offset
    for (int32_t m : order) {
      Memory& memory = plan_.memories[m];
      memory.offset = find_gap(memory, placed);
      auto at =
          std::upper_bound(placed.begin(), placed.end(), memory.offset, [](int64_t offset, const Memory* o) { return offset < o->offset; });
      placed.insert(at, &memory);
      plan_.arena_bytes = std::max(plan_.arena_bytes, memory.offset + rounded(memory.bytes));
    }
  }

  static int64_t rounded(int64_t bytes) {
    return (std::max<int64_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
  }

  // `placed` is in the order of offsets, so that one walk finds the first gap; memories that live at other times do not count.
  static int64_t find_gap(const Memory& memory, const std::vector<const Memory*>& placed) {
    int64_t offset = 0;
    for (const Memory* other : placed) {
      if (other->last < memory.first || memory.last < other->first) {
        continue;
      }
      if (offset + rounded(memory.bytes) <= other->offset) {
        break;
      }
      offset = std::max(offset, other->offset + rounded(other->bytes));
    }
    return offset;
  }

  const Graph& graph_;
  const std::vector<Place>& places_;
  const std::vector<StepAccess>& steps_;
  std::vector<int32_t> last_read_; // by root: the last step that reads it; -1: none
  std::vector<int32_t> in_use_until_; // by root: the end of its reads; the number of steps for outputs, -1 for never
  std::vector<int32_t> in_use_before_; // by root: the same of its reads before the last
  std::vector<bool> is_output_; // by root
  MemoryPlan plan_;
};

} // namespace

MemoryPlan plan_memory(const LaidOutGraph& laid_out, const std::vector<StepAccess>& steps) {
  return MemoryPlanner(laid_out, steps).run();
}

} // namespace torch_xla::cpu
