// Calls Python's part of the first use of the device.
#include "core/first_use.h"

#include <atomic>

namespace torch_xla::first_use {
namespace {

std::atomic<void (*)()> left{nullptr}; // null: already done

} // namespace

void set(void (*act)()) {
  left = act;
}

void begin() {
  if (auto* act = left.load(std::memory_order_acquire)) {
    act();
    left = nullptr;
  }
}

} // namespace torch_xla::first_use
