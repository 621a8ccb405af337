// Event timing for torch.profiler.
#include <torch/csrc/profiler/stubs/base.h>

#include <chrono>

#include "device/device.h"
#include "device/event.h"
#include "engine/engine.h"
#include "program/sync.h"

namespace torch_xla {

int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

namespace {

namespace profiler = torch::profiler::impl;

struct XlaProfilerStubs final : profiler::ProfilerStubs {
  void record(c10::DeviceIndex* device, profiler::ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    if (device != nullptr) {
      *device = current_device();
    }
    auto made = std::make_shared<Event>();
    made->record(current_device(), /*timed=*/true);
    *event = std::move(made);
    if (cpu_ns != nullptr) {
      *cpu_ns = wall_ns();
    }
  }
  // Microseconds.
  float elapsed(const profiler::ProfilerVoidEventStub* start, const profiler::ProfilerVoidEventStub* end) const override {
    const auto& from = *static_cast<const Event*>(start->get());
    const auto& to = *static_cast<const Event*>(end->get());
    from.wait();
    to.wait();
    return static_cast<float>(from.elapsed_ms(to) * 1e3);
  }
  void mark(const char* /*name*/) const override {}
  void rangePush(const char* /*name*/) const override {}
  void rangePop() const override {}
  bool enabled() const override {
    return true;
  }
  void onEachDevice(std::function<void(int)> op) const override {
    for (int index = 0; index < num_devices(); ++index) {
      op(index);
    }
  }
  void synchronize() const override {
    onEachDevice([](int device) { sync(device, true); });
  }
};

} // namespace

void register_profiler() {
  profiler::registerPrivateUse1Methods(new XlaProfilerStubs()); // kept for the life of the process
}

} // namespace torch_xla
