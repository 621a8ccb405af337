// Whether any value of the process has been lost, so that searches for lost values can be skipped.
#pragma once

namespace torch_xla {

// True once a buffer has failed. Any thread.
bool has_lost_values();

} // namespace torch_xla
