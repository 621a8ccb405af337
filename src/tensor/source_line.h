// The user's source lines, which Python reads: see api.h for the hooks.
#pragma once

#include <cstdint>
#include <string>

#include "core/observer.h"

namespace torch_xla {

// The user's line on this thread, as an id for location_text(), or -1. Takes no lock and no GIL.
int64_t current_location();
// As current_location() for an event, which finds its line only where somebody listens: the walk over the frames is dear.
inline int64_t observed_location() {
  return observer::is_on() ? current_location() : -1;
}
// "file.py:12 in forward" of a recorded location; empty when unknown. Never takes the GIL.
std::string location_text(int64_t id);

} // namespace torch_xla
