// Whether any value of the process has been lost, so that those who look for lost ones need not where none is.
#pragma once

namespace torch_xla {

// True once a buffer has failed. Any thread.
bool has_lost_values();

} // namespace torch_xla
