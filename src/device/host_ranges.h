// The operations of PyTorch and the ranges of record_function() that threads are in while torch.profiler records.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torch_xla {

enum class RangeKind : uint8_t { kOperation, kAnnotation };

struct Range {
  uint64_t session; // that told of it: what one leaves behind is not the next one's
  uint64_t id;
  std::shared_ptr<const Range> outer; // null, or of the same session
};
using RangeRef = std::shared_ptr<const Range>;

// Of the calling thread.
void enter_range(RangeKind kind, uint64_t session, uint64_t id);
void leave_range(RangeKind kind, uint64_t session);
RangeRef innermost_range(RangeKind kind, uint64_t session); // null outside of all

// The next sessions of this thread have the ranges of all threads, until it is switched off on the same thread, which gives no warnings
// meanwhile. torch.profiler can do that too (profile_all_threads), but where a thread is within an operation while it ends, its queues
// break.
void set_all_threads(bool on);
bool all_threads();

// The ranges of all threads, as the dispatcher tells them.
class HostRanges {
 public:
  struct Entry {
    RangeKind kind;
    uint64_t id; // in the session, from 1 on
    std::string name;
    int32_t thread; // of the system
    int64_t start_ns; // of metrics::now_ns()
    int64_t end_ns;
  };

  ~HostRanges();
  void start(uint64_t session);
  // Returns what has begun and ended meanwhile, kMaxEntries at most.
  std::vector<Entry> stop();

  static constexpr size_t kMaxEntries = 1 << 20;

 private:
  at::CallbackHandle handle_ = 0; // 0: it has not been started
};

} // namespace torch_xla
