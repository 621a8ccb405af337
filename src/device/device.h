// The device as PyTorch sees it: registration of hooks, guard, allocators, and what they share.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace torch_xla {

constexpr c10::DeviceType kXlaType = c10::DeviceType::PrivateUse1;

// Registers the device with PyTorch under the name "xla": kernels, hooks, guard, allocators, autocast, profiler. register_all() of
// cpp/load.h calls it once. Throws c10::Error if another backend has taken PrivateUse1.
void register_device();

// The calling thread's device; set_current_device throws UserError for an index that does not exist.
c10::DeviceIndex current_device() noexcept;
void set_current_device(c10::DeviceIndex index);
void set_current_device_unchecked(c10::DeviceIndex index) noexcept; // below kMaxDevices

// The device's number for an index of PyTorch: -1 is the calling thread's device. Throws c10::Error for a device that does not exist.
c10::DeviceIndex existing_device(c10::DeviceIndex index);

// Gives unused memory that the devices' allocators keep back to the system.
void empty_caches();

// True in a process forked after its parent had used the device: tensors may be freed, and nothing may run.
bool in_bad_fork();

// True for the address of a storage made by pin_memory(). Any thread.
bool is_pinned(const void* data);

// Now, on the clock of PyTorch's profilers, in nanoseconds. Any thread.
int64_t wall_ns();

// One of each, called by register_device().
void register_hooks();
void register_guard();
void register_allocators();
void register_autocast();
void register_profiler();
void register_activity_profiler();
void register_graphs();

// Between these calls PyTorch's memory profiler gets the device's allocations, if the calling thread's profiler asks for memory.
void start_memory_profiler();
void stop_memory_profiler();

} // namespace torch_xla
