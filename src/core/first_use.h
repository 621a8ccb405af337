// Python's part of the device's start, which waits for the first use of the device.
#pragma once

namespace torch_xla::first_use {

// Sets the function that the first use of the device calls first: Python's part, which takes the GIL. Call it once, while the library is
// loaded.
void set(void (*act)());
// Called before the engine is made and before a tensor gets memory. Throws the exception of `act`; the next call then tries again. Several
// threads may call it at the same time. The caller holds no lock, unless it has called begin() before.
void begin();

} // namespace torch_xla::first_use
