// The device as PyTorch sees it: registration of hooks, guard, allocators, and what they share.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace torch_xla {

constexpr c10::DeviceType kXlaType = c10::DeviceType::PrivateUse1;

// Registers the device with PyTorch under the name "xla": kernels, hooks, guard, allocators, autocast, profiler. For register_all() of
// cpp/load.h, which calls it once. Throws c10::Error where another backend has taken PrivateUse1.
void register_device();

// The calling thread's device; set_current_device throws UserError for an index that does not exist.
c10::DeviceIndex current_device() noexcept;
void set_current_device(c10::DeviceIndex index);
void set_current_device_unchecked(c10::DeviceIndex index) noexcept; // below kMaxDevices

// The number of the device that PyTorch means by an index: -1 is the calling thread's. Throws c10::Error for one that does not exist.
c10::DeviceIndex existing_device(c10::DeviceIndex index);

// Gives what the devices' allocators keep for later back to the system.
void empty_caches();

// True in a process that was forked from one that had used the device: here tensors may be freed, and nothing may run.
bool in_bad_fork();

// True for the address of a storage that pin_memory() has made. Any thread.
bool is_pinned(const void* data);

// The time that PyTorch's profilers count in. Any thread.
int64_t wall_ns();

// One of each, called by register_device().
void register_hooks();
void register_guard();
void register_allocators();
void register_autocast();
void register_profiler();
void register_activity_profiler();
void register_graphs();

// While it is on, the profiler of a thread is told of device memory, if the calling thread's wants to know.
void start_memory_profiler();
void stop_memory_profiler();

} // namespace torch_xla
