// Finds replicas of a run that have ended or hang: each process counts up a key of its own in the run's store.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace torch_xla {

using StoreRef = c10::intrusive_ptr<c10d::Store>;

// Counts for the replica once a second, on a thread of its own that needs no GIL, until the process or the store ends. Call it once in a
// process, with a store for it alone. stop_heartbeat() waits for the current count, two seconds at most.
void start_heartbeat(const StoreRef& store, int64_t replica);
void stop_heartbeat();

// The counts by replica. Empty if nobody counts: the replicas are threads of one process.
std::vector<int64_t> read_heartbeats(c10d::Store& store);

// The replicas that have not counted while another one counted `beats` times. The beats are the clock: if the whole machine stops for a
// while, no replica is silent.
std::vector<int64_t> find_silent(const std::vector<int64_t>& before, const std::vector<int64_t>& after, int64_t beats);

// For the error of a call that other replicas have not joined: "replica 1 has ended or does not answer; ", or nothing. Takes seconds.
std::string describe_lost(c10d::Store& store);

} // namespace torch_xla
