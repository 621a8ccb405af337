// The tracks of a device in torch.profiler's view.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/observer.h"

namespace torch_xla {

// In their order on the screen: steps of runs, with whole runs as annotations; transfers of collectives beside them; ranges of
// record_function(), from the first to the last step recorded in each; waits of queued runs for earlier runs; recording of each trace.
// After kRecording: one track per thread for steps that run beside others.
enum Track : int32_t { kPrograms, kCollectives, kAnnotations, kQueue, kRecording, kNumTracks };

std::string track_name(int32_t track);

// Kernels, library calls, writes through views.
inline bool is_step(observer::Phase phase) {
  return phase == observer::Phase::kKernel || phase == observer::Phase::kLibrary || phase == observer::Phase::kUpdate;
}

// Gives each event its track.
class Tracks {
 public:
  // The track of an event. Events come in the order of their start; `thread` ran the event.
  int32_t take(const observer::Event& event, int32_t thread);
  // The largest number of tracks of a device.
  int32_t size() const {
    return size_;
  }

 private:
  struct Steps {
    int32_t thread;
    int64_t end_ns;
  };
  std::unordered_map<int, std::vector<Steps>> steps_; // by device: the last steps of each track with steps of programs
  int32_t size_ = kNumTracks;
};

} // namespace torch_xla
