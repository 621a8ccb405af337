// Whether the replicas of a group call the same collectives in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "distributed/heartbeats.h"

namespace torch_xla {

// What a replica calls. Lives as long as the call.
struct Collective {
  const char* name;
  const at::Tensor& input;
  std::string_view reduction = {};
  at::IntArrayRef numbers = {}; // that all replicas give: a root, pairs
  at::IntArrayRef received = {}, sent = {}; // rows from and to each replica, of an all_to_all
  bool meets = true; // it ends nowhere before all have begun it
  bool is_transfers = false; // gloo's sends and receives, which end where a wait for them ends early
};

// One replica's part of it. What it calls is shown to the others by the group's store, and compared, wherever it has not called that behind
// what it called before: steps that repeat cost one look into a table. Where all call the same, all show the same, as novelty follows from
// the order of the calls; nobody waits for what another one has not shown. Any thread.
class Agreement {
 public:
  // `store`: of this group alone, and of this object alone, as its calls must not wait for another one's. `replica`: of the run, for
  // messages.
  Agreement(StoreRef store, int64_t rank, int64_t size, int64_t replica);

  struct Call {
    int64_t number; // in the group, from 1 on
    bool is_shown;
    bool meets; // and all replicas show it or none
  };
  // Both throw c10::Error that names the lines of two replicas whose calls differ. What must match has not begun when begin() throws.
  Call begin(const Collective& collective);
  void end(const Call& call);
  // Where two replicas' calls differed, as the first one to see it has said it; empty where all went well.
  std::string find_difference();

 private:
  struct Shown;
  bool is_new(const Collective& collective);
  std::vector<Shown> read_others(int64_t number);
  void compare(const Collective& collective, const Shown& ours, const Shown& theirs);
  [[noreturn]] void fail(const std::string& text);

  const StoreRef store_;
  const int64_t rank_, size_, replica_;
  std::mutex mutex_; // guards all below; held while the store is called
  int64_t num_calls_ = 0;
  uint64_t last_ = 0; // hash of the last call
  std::unordered_set<uint64_t> known_; // hashes of calls with the one before
  std::unordered_set<uint64_t> known_rows_; // of those whose rows each replica chooses: what is new differs among replicas
  std::string ours_; // the last call that was shown, in words
};

// "all_reduce(sum) of 4 numbers of float32".
std::string describe(const Collective& collective);
// " at train.py:12 in step", of the step or the Python code that this thread runs; empty where that is not known.
std::string describe_line();

} // namespace torch_xla
