// Which track shows an event; steps that overlap in time get one for each thread.
#include "device/profile_tracks.h"

#include <algorithm>

#include "core/errors.h"

namespace torch_xla {

using observer::Phase;

std::string track_name(int32_t track) {
  constexpr const char* kNames[kNumTracks] = {"programs", "collectives", "annotations", "queue", "recording"};
  return track < kNumTracks ? kNames[track] : str("programs, beside ", track - kNumTracks + 1);
}

int32_t Tracks::take(const observer::Event& event, int32_t thread) {
  if (event.phase == Phase::kQueue || event.phase == Phase::kTrace) {
    return event.phase == Phase::kQueue ? kQueue : kRecording;
  }
  if (event.phase == Phase::kLibrary && event.bytes >= 0) {
    return kCollectives;
  }
  if (!is_step(event.phase)) {
    return kPrograms;
  }
  std::vector<Steps>& steps = steps_[event.device];
  // Steps of one thread may be nested: a loop and the steps of its turns.
  auto found = std::find_if(steps.begin(), steps.end(), [&](const Steps& s) { return s.thread == thread || s.end_ns <= event.start_ns; });
  if (found == steps.end()) {
    found = steps.insert(found, {thread, event.end_ns});
  }
  *found = {thread, std::max(found->end_ns, event.end_ns)};
  auto number = static_cast<int32_t>(found - steps.begin());
  int32_t track = number == 0 ? int32_t{kPrograms} : kNumTracks + number - 1;
  size_ = std::max(size_, track + 1);
  return track;
}

} // namespace torch_xla
