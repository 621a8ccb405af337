// The tracks of a device on which torch.profiler shows what it does.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/observer.h"

namespace torch_xla {

// In their order on the screen: what the runs do, and the whole runs as annotations; the transfers of collectives, which go on beside it;
// the ranges of record_function(), from the first to the last step that was recorded within; how long runs waited for those before them;
// how long each trace was recorded. Behind the last one: steps that go on beside others of the run, a track for each thread.
enum Track : int32_t { kPrograms, kCollectives, kAnnotations, kQueue, kRecording, kNumTracks };

std::string track_name(int32_t track);

// Kernels, library calls, writes through views.
inline bool is_step(observer::Phase phase) {
  return phase == observer::Phase::kKernel || phase == observer::Phase::kLibrary || phase == observer::Phase::kUpdate;
}

// Gives each event its track.
class Tracks {
 public:
  // Of what a device does, in the order in which it began. `thread`: on which it went on.
  int32_t take(const observer::Event& event, int32_t thread);
  // As many as any device needs.
  int32_t size() const {
    return size_;
  }

 private:
  struct Steps {
    int32_t thread;
    int64_t end_ns;
  };
  std::unordered_map<int, std::vector<Steps>> steps_; // by device: the last ones of each track that has steps of programs
  int32_t size_ = kNumTracks;
};

} // namespace torch_xla
