// The user's source lines, read by Python.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/observer.h"

namespace torch_xla {

// The user's line on this thread, as an id for location_text(), or -1. Takes no lock and no GIL.
int64_t current_location();
// The PyTorch function in Python that the user's line has called on this thread ("Tensor.__repr__" for print), as an id for
// location_text(), or -1.
int64_t current_call();
// The same for an event of the phase. Only if there is an observer: the walk over the frames is expensive.
inline int64_t observed_location(observer::Phase phase) {
  return observer::is_on(phase) ? current_location() : -1;
}
inline int64_t observed_call(observer::Phase phase) {
  return observer::is_on(phase) ? current_call() : -1;
}
// "file.py:12 in forward" of a recorded location; empty when unknown. Never takes the GIL.
std::string location_text(int64_t id);

constexpr size_t kAllFrames = SIZE_MAX;
// The Python frames of this thread, innermost first, `most` at most: "forward (train.py:12)"; empty if it runs no Python. Takes no GIL.
std::vector<std::string> current_frames(size_t most);

// Python's hooks. The provider returns an id of the user's current line, or -1; each recorded node calls it without the GIL. `call` returns
// an id of the name of the PyTorch function that this line called; reads of values call it.
using LocationProvider = int64_t (*)();
// "train.py:12 in forward"; called under the recording lock: never takes the GIL.
using LocationResolver = std::string (*)(int64_t id);
void set_location_hooks(LocationProvider provider, LocationProvider call, LocationResolver resolver);
// The Python frames of the calling thread, innermost first, `most` at most: "forward (train.py:12)". Called without the GIL.
using FrameReader = std::vector<std::string> (*)(size_t most);
void set_frame_reader(FrameReader reader);

} // namespace torch_xla
