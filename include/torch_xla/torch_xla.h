// What a C++ program calls of the device `xla`. All else is PyTorch's own C++ interface.
//
// Linking libtorch_xla.so (CMake's target torch_xla::torch_xla), or loading it, registers the device: torch::Device("xla") and
// torch::Device("xla:1") are devices from then on, without a call and without Python. torch::manual_seed() seeds them too. A program that
// was linked by other means than that target keeps the library by any call of this header.
//
// Operations on the device are recorded, not run. A value that is needed (item(), to(torch::kCPU), a print) runs what was recorded, as
// sync() does. Wrong arguments throw where the operation is called; what only a run can tell (an index out of range, memory that is out)
// is thrown by the first that reads the value, or by sync(). All errors are c10::Error or classes of it (c10::IndexError,
// c10::OutOfMemoryError), but for a fault of the library itself, a std::logic_error.
//
// Any thread may call these functions. In a process that was forked from one that had used the device they throw.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

namespace torch_xla {

// The device `xla:index`; without an index the calling thread's, xla:0 unless a c10::DeviceGuard has changed it. Throws c10::Error for an
// index that does not exist.
c10::Device device(std::optional<int> index = std::nullopt);

// How many devices the process has: one, or as many as CPU_NUM_DEVICES says; those of the plugin that PJRT_DEVICE names. Throws c10::Error
// where that has none, or cannot be opened.
int device_count();

// Runs what is recorded on the calling thread's device. With `wait`, or with XLA_SYNC_WAIT=1, it returns when that has run; without, the
// next step is recorded meanwhile. Call it at the end of each training step: torch::optim does not, as Python's optimizers do, and a trace
// without a sync is cut and run once it has grown long. Throws the error of the compile, or of an earlier run that nobody was told.
void sync(bool wait = false);

// Waits until what all devices were given has run; what is only recorded stays so. Throws the first error that nobody was told.
void wait_device_ops();

// What the devices have done since the start as text, the same as Python's torch_xla.debug.metrics.metrics_report(): compiles, runs,
// transfers with their times, and operations that ran on the CPU for want of a kernel (`aten::name`).
std::string metrics_report();

// One counter of that report, as "UncachedCompile" (programs compiled); nothing where it has not counted yet.
std::optional<int64_t> counter_value(const std::string& name);

} // namespace torch_xla
