// Finds the operation that recorded a step's node.
#include "device/profile_entries.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "device/profile_tracks.h"

namespace torch_xla {

using observer::Event;
using observer::Phase;

void link_steps(std::vector<ProfileEntry>& entries) {
  using Records = std::unordered_map<int32_t, ProfileEntry*>; // by node
  std::unordered_map<int, Records> pending; // by device
  std::unordered_map<uint64_t, Records> of_run;
  std::unordered_set<uint64_t> begun; // operations whose arrow has its beginning: at one of the nodes that they recorded
  for (ProfileEntry& entry : entries) {
    const Event& event = entry.event;
    if (event.phase == Phase::kRecord && (entry.operation || entry.annotation)) {
      pending[event.device][event.node] = &entry;
    } else if (event.phase == Phase::kSync) {
      of_run[event.run] = std::exchange(pending[event.device], {});
    }
  }
  for (ProfileEntry& entry : entries) {
    Records& records = of_run[entry.event.run];
    auto record = is_step(entry.event.phase) ? records.find(entry.event.node) : records.end();
    if (record != records.end()) {
      entry.operation = record->second->operation;
      entry.annotation = record->second->annotation;
      entry.is_linked = entry.operation;
      record->second->is_linked |= entry.operation && begun.insert(entry.operation).second;
    }
  }
}

} // namespace torch_xla
