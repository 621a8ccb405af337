// PrivateUse1 hooks: PyTorch's questions to a device besides kernels.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "device/device.h"
#include "engine/engine.h"
#include "recording/generator.h"
#include "recording/recording.h"

namespace torch_xla {
namespace {

struct XlaHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(num_visible_devices());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    set_current_device_unchecked(existing_device(index));
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return current_device();
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex previous = current_device();
    setCurrentDevice(index);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  bool isPinnedPtr(const void* data) const override {
    return is_pinned(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return at::getHostAllocator(kXlaType);
  }
  // No address is memory of a device.
  c10::Device getDeviceFromPtr(void* /*data*/) const override {
    return {kXlaType, current_device()};
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(existing_device(index));
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<XlaGenerator>(existing_device(index));
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage_bytes(storage, nbytes);
  }
};

} // namespace

void register_hooks() {
  // PyTorch keeps the pointer for the life of the process.
  at::RegisterPrivateUse1HooksInterface(new XlaHooks());
}

} // namespace torch_xla
