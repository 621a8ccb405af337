// Checks that the replicas of a group call the same collectives in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "distributed/heartbeats.h"

namespace torch_xla {

// One call of a replica. Lives as long as the call.
struct Collective {
  const char* name;
  const at::Tensor& input;
  std::string_view reduction = {};
  at::IntArrayRef numbers = {}; // numbers that all replicas give: a root, pairs
  at::IntArrayRef received = {}, sent = {}; // rows from and to each replica, of an all_to_all
  bool meets = true; // it ends on no replica before all have begun it
  bool is_transfers = false; // gloo's sends and receives: they fail if a wait for them ends early
};

// One replica's part of the check. Each new pair of successive calls is published in the group's store and compared; a repeated pair costs
// one table look-up. Replicas with the same calls publish the same pairs, so none waits for a pair that another does not publish. Any
// thread.
class Agreement {
 public:
  // `store`: for this group and this object alone, as its calls must not wait for others. `replica`: the number in the run, for messages.
  Agreement(StoreRef store, int64_t rank, int64_t size, int64_t replica);

  struct Call {
    int64_t number; // in the group, from 1 on
    bool is_shown;
    bool meets; // and all replicas publish it or none
  };
  // Both throw c10::Error that names the lines of two replicas with different calls. If begin() throws, the collective has not begun.
  Call begin(const Collective& collective);
  void end(const Call& call);
  // The message of the first replica that found a difference; empty if there is none.
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
  std::unordered_set<uint64_t> known_rows_; // the same for calls with rows that each replica chooses: new pairs differ among replicas
  std::string ours_; // the last published call, in words
};

// "all_reduce(sum) of 4 numbers of float32".
std::string describe(const Collective& collective);
// " at train.py:12 in step", of the step or the Python code that this thread runs; empty if unknown.
std::string describe_line();

} // namespace torch_xla
