// What is known of traces' numbers: which are constants of their programs, and which change.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "core/hash.h"
#include "program/number_groups.h"
#include "trace/trace.h"

namespace torch_xla {

// By the structure of a trace, so that the changes seen with one shape are expected with the next one. Groups that runs have refined are
// kept on disk beside the programs: a later process compiles no program that the first change of a number would replace. Only for engines
// with Engine::shares_numbers(); for others each number is a group. Thread-safe; its lock is a leaf.
class KnownNumbers {
 public:
  static KnownNumbers& get(); // leaked on purpose
  // The groups of a program that is compiled for the trace now: they hold for its numbers. Of an unknown structure, those change that an
  // optimizer's step or a random draw takes; with torch.use_deterministic_algorithms() all, as folding may change last bits.
  NumberGroups find(const Trace& trace);
  // Notes the groups of the trace's program.
  void note(const Trace& trace, const NumberGroups& groups);
  // On: numbers stay constants when they change, so that each set of values has a program; only random draws change. Any thread.
  void keep_constants(bool on) {
    keeps_constants_.store(on, std::memory_order_relaxed);
  }

 private:
  std::optional<NumberGroups> find_known(const Hash128& structure); // also on disk
  // Whether other groups were known.
  bool replace(const Hash128& structure, const NumberGroups& groups);

  std::atomic<bool> keeps_constants_{false};
  std::mutex mutex_;
  std::unordered_map<Hash128, NumberGroups> known_; // guarded by mutex_
};

} // namespace torch_xla
