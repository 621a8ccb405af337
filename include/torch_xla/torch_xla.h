// The C++ functions of the device `xla`. For all else use PyTorch's own C++ interface.
//
// Linking libtorch_xla.so (CMake's target torch_xla::torch_xla), or loading it, registers the device: torch::Device("xla") and
// torch::Device("xla:1") are devices from then on, without a call and without Python. torch::manual_seed() seeds them too. A program linked
// without that CMake target must call a function of this header, else the linker drops the library.
//
// Operations on the device are recorded, not run. Reading a value (item(), to(torch::kCPU), a print) runs the recorded operations, as
// sync() does. Wrong arguments throw where the operation is called. Errors that only a run finds (an index out of range, no memory left)
// are thrown by the first read of the value, or by sync(). All errors are c10::Error or subclasses (c10::IndexError,
// c10::OutOfMemoryError); a fault of the library itself is a std::logic_error.
//
// Any thread may call these functions. They throw in a process that was forked after its parent had used the device.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

namespace torch_xla {

// The device `xla:index`; without an index the calling thread's, xla:0 unless a c10::DeviceGuard has changed it. Throws c10::Error for an
// index that does not exist.
c10::Device device(std::optional<int> index = std::nullopt);

// The number of devices: CPU_NUM_DEVICES (1 by default), or the devices of the plugin that PJRT_DEVICE names. Throws c10::Error if the
// plugin has none or cannot be opened.
int device_count();

// Runs the operations recorded on the calling thread's device. With `wait`, or with XLA_SYNC_WAIT=1, it returns after the run; without, the
// next step can be recorded meanwhile. Call it at the end of each training step: torch::optim does not sync, unlike Python's optimizers,
// and a trace without a sync is cut and run once it is long. Throws the error of the compile, or of an earlier run if nobody has received
// it.
void sync(bool wait = false);

// Waits for the queued runs of all devices; recorded operations stay pending. Throws the first error that nobody has received.
void wait_device_ops();

// The metrics report of all devices since the start, the same as Python's torch_xla.debug.metrics.metrics_report(): compiles, runs,
// transfers with their times, and operations that ran on the CPU for lack of a kernel (`aten::name`).
std::string metrics_report();

// One counter of that report, for example "UncachedCompile" (programs compiled); nothing if it has not counted yet.
std::optional<int64_t> counter_value(const std::string& name);

} // namespace torch_xla
