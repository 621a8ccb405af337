// Device memory for torch.profiler (profile_memory=True): allocations and frees go to the profiler of the thread that caused them.
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "core/memory_log.h"
#include "device/device.h"

namespace torch_xla {
namespace {

using c10::ThreadLocalDebugInfo;

thread_local bool works_for_another = false;

// PyTorch's profilers belong to threads, through the thread's debug information; a run carries it to its own thread.
struct MemoryProfiler final : memory_log::Listener {
  void on_change(const memory_log::Change& change) override {
    c10::reportMemoryUsageToProfiler(
        const_cast<void*>(change.address), // which PyTorch only prints
        change.bytes,
        static_cast<size_t>(change.used),
        static_cast<size_t>(change.reserved),
        {kXlaType, static_cast<c10::DeviceIndex>(change.device)});
  }
  // A profiler waits for the runs of its thread's current device before it ends, and must get no events after that.
  memory_log::Caller caller(int device) override {
    const bool is_waited_for = works_for_another || device == current_device();
    return is_waited_for && c10::memoryProfilingEnabled() ? ThreadLocalDebugInfo::current() : nullptr;
  }
  memory_log::Caller exchange(memory_log::Caller caller) override {
    auto before = ThreadLocalDebugInfo::current();
    works_for_another = caller != before && caller;
    ThreadLocalDebugInfo::_forceCurrentDebugInfo(std::static_pointer_cast<ThreadLocalDebugInfo>(std::move(caller)));
    return before;
  }
};

} // namespace

void start_memory_profiler() {
  static auto* profiler = new MemoryProfiler; // other threads may call it for a moment after the end
  memory_log::set_listener(c10::memoryProfilingEnabled() ? profiler : nullptr);
}

void stop_memory_profiler() {
  memory_log::set_listener(nullptr);
}

} // namespace torch_xla
