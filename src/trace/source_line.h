// The user's source lines, which Python reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/observer.h"

namespace torch_xla {

// The user's line on this thread, as an id for location_text(), or -1. Takes no lock and no GIL.
int64_t current_location();
// PyTorch's function in Python that the user's line has called on this thread ("Tensor.__repr__" for print), as an id for
// location_text(), or -1.
int64_t current_call();
// As these for an event of the phase, which finds them only where somebody listens: the walk over the frames is dear.
inline int64_t observed_location(observer::Phase phase) {
  return observer::is_on(phase) ? current_location() : -1;
}
inline int64_t observed_call(observer::Phase phase) {
  return observer::is_on(phase) ? current_call() : -1;
}
// "file.py:12 in forward" of a recorded location; empty when unknown. Never takes the GIL.
std::string location_text(int64_t id);

constexpr size_t kAllFrames = SIZE_MAX;
// The Python frames of this thread, innermost first, at most so many: "forward (train.py:12)"; empty where it runs no Python. Takes no GIL.
std::vector<std::string> current_frames(size_t most);

// The hooks through which Python gives them. The provider gives an id of the user's current line, or -1; it is called at each recorded node
// without the GIL. `call` gives one of the name of PyTorch's function that this line called; it is called where a value is read.
using LocationProvider = int64_t (*)();
// "train.py:12 in forward"; called under the recording lock: never takes the GIL.
using LocationResolver = std::string (*)(int64_t id);
void set_location_hooks(LocationProvider provider, LocationProvider call, LocationResolver resolver);
// The Python frames of the calling thread, innermost first, at most so many: "forward (train.py:12)". Called without the GIL.
using FrameReader = std::vector<std::string> (*)(size_t most);
void set_frame_reader(FrameReader reader);

} // namespace torch_xla
