// Device guard with streams and events. All streams of a device run in one order, so a stream is only a name.
#include <c10/core/AutogradState.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <utility>
#include <vector>

#include "core/devices.h"
#include "core/process.h"
#include "device/device.h"
#include "device/event.h"
#include "engine/engine.h"
#include "program/sync.h"
#include "recording/recording.h"
#include "runtime/executor.h"
#include "trace/recorder.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

// The thread's own, by device; empty: the default ones. No array: a library that is loaded late has little room for a thread's variables.
thread_local std::vector<c10::StreamId> tls_streams;
std::atomic<c10::StreamId> next_stream{1};

// Autograd's threads for devices start with the first backward of the process. A device first used after that has no thread.
std::atomic<bool> has_no_thread{false};
std::atomic<bool> has_nodes{false}; // autograd has nodes of the device, which fake tensors have, too
thread_local bool tls_stays_here = false;

// Autograd asks for the stream of each node of the device that it makes or runs. Its backward should stay on the calling thread, as for CPU
// tensors, which saves two switches of threads. A user may switch the device's thread on again; if it does not exist, PyTorch would raise
// an internal error.
void keep_backward_here() {
  if (!tls_stays_here || has_no_thread.load(std::memory_order_relaxed)) {
    tls_stays_here = true;
    has_nodes = true;
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
}

c10::Stream make_stream(c10::Device device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, {kXlaType, existing_device(device.index())}, id);
}

c10::StreamId& current_stream(c10::Device device) {
  tls_streams.resize(kMaxDevices);
  return tls_streams[static_cast<size_t>(existing_device(device.index()))];
}

const Event& event_of(void* event) {
  static const Event never_recorded;
  return event == nullptr ? never_recorded : *static_cast<const Event*>(event);
}

struct XlaGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kXlaType;
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  c10::Device getDevice() const override {
    return {kXlaType, current_device()};
  }
  void setDevice(c10::Device device) const override {
    if (device.index() != current_device()) {
      set_current_device_unchecked(existing_device(device.index()));
    }
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < kMaxDevices) {
      set_current_device_unchecked(device.index());
    }
  }
  // Autograd asks in the first backward, also of the CPU, and starts so many threads: with one, no child that is forked later could have a
  // backward. So there is no device before its first use.
  c10::DeviceIndex deviceCount() const noexcept override {
    if (!process::is_used() && !has_nodes) {
      has_no_thread = true;
      return 0;
    }
    return static_cast<c10::DeviceIndex>(num_visible_devices());
  }

  // The element types that operations are recorded for.
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    existing_device(device.index());
    c10::DeviceCapability found;
    uint64_t& bits = found.capability_data.capability_bits;
    bits = 0;
    c10::DeviceCapability().forEachSupportedScalarType(
        [&bits](c10::ScalarType type) { bits |= is_recordable(to_dtype(type)) ? uint64_t{1} << static_cast<int>(type) : 0; });
    return found;
  }

  c10::Stream getStream(c10::Device device) const override {
    keep_backward_here();
    return make_stream(device, current_stream(device));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return make_stream(device, 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high_priority*/) const override {
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return make_stream(device, next_stream++);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    keep_backward_here();
    c10::StreamId& current = current_stream(stream.device());
    return make_stream(stream.device(), std::exchange(current, stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    const c10::DeviceIndex index = existing_device(stream.device_index());
    with_torch_errors([index] { sync(index, false); });
    return Executor::get(index).idle();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronizeDevice(stream.device_index());
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    const c10::DeviceIndex existing = existing_device(index);
    with_torch_errors([existing] { sync(existing, true); });
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*index*/, const c10::EventFlag flag) const override {
    const c10::DeviceIndex index = existing_device(stream.device_index());
    if (*event == nullptr) {
      *event = new Event(); // destroyEvent deletes it
    }
    with_torch_errors([&] { static_cast<Event*>(*event)->record(index, flag == c10::EventFlag::BACKEND_DEFAULT); });
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  // A device's programs have one order, and a copy to another device waits for its value: there is nothing to wait for.
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  bool queryEvent(void* event) const override {
    return with_torch_errors([event] { return event_of(event).query(); });
  }
  void synchronizeEvent(void* event) const override {
    with_torch_errors([event] { event_of(event).wait(); });
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex /*index*/) const override {
    return event_of(start).elapsed_ms(event_of(end));
  }
};

} // namespace

void register_guard() {
  // The registry keeps the pointer for the life of the process.
  static const c10::impl::DeviceGuardImplRegistrar registrar(kXlaType, new XlaGuard());
}

} // namespace torch_xla
