// What is left out while the device is not used: the part of its first use that is not C++.
#pragma once

namespace torch_xla::first_use {

// Has the first use of the device call `act` before it: Python's part, which takes the GIL. Once, while the library is loaded.
void set(void (*act)());
// Comes before the engine is made and before each memory of a tensor's, and throws what `act` throws; the next one then calls it again.
// Several threads may call it at the same time. The caller holds no lock unless it has called this before.
void begin();

} // namespace torch_xla::first_use
