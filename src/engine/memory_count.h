// Counts of memory in use, for engines.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "core/control_group.h"

namespace torch_xla {

// Bytes in use, and their peak since the last reset_peak(). Thread-safe.
class PeakCount {
 public:
  void add(int64_t bytes) {
    int64_t now = used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void subtract(int64_t bytes) {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
  }
  // Sets the peak to the bytes in use. Returns the old peak.
  int64_t reset_peak() {
    int64_t peak = peak_.exchange(0, std::memory_order_relaxed);
    add(0); // sees additions of other threads before the exchange
    return peak;
  }
  int64_t used() const {
    return used_.load(std::memory_order_relaxed);
  }
  int64_t peak() const {
    return peak_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> used_{0};
  std::atomic<int64_t> peak_{0};
};

// The machine's memory in bytes, or the control group's limit if lower: the limit of devices that use the host's memory.
inline int64_t host_memory() {
  static const int64_t bytes = [] {
    const int64_t machine = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
    const std::optional<double> limit = control_group::read_memory_limit();
    return limit && *limit < static_cast<double>(machine) ? static_cast<int64_t>(*limit) : machine;
  }();
  return bytes;
}

} // namespace torch_xla
