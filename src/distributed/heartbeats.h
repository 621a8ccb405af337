// Who of a run has ended or stands still: each process counts up a key of its own in the run's store.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace torch_xla {

using StoreRef = c10::intrusive_ptr<c10d::Store>;

// Counts for the replica once a second, on a thread of its own that needs no GIL, until the process or the store ends. Once in a process;
// `store` is nobody else's. stop_heartbeat() waits for a count that is under way, two seconds at most.
void start_heartbeat(const StoreRef& store, int64_t replica);
void stop_heartbeat();

// By replica. Empty where nobody counts: threads of one process.
std::vector<int64_t> read_heartbeats(c10d::Store& store);

// The replicas that have not counted while another one counted on by so many beats. These are the clock: on a machine that stands still for
// a while nobody is silent.
std::vector<int64_t> find_silent(const std::vector<int64_t>& before, const std::vector<int64_t>& after, int64_t beats);

// For the error of a call that others have not joined: "replica 1 has ended or does not answer; ", or nothing. Takes seconds.
std::string describe_lost(c10d::Store& store);

} // namespace torch_xla
