// The open operations of PyTorch and ranges of record_function() of each thread while torch.profiler records.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torch_xla {

enum class RangeKind : uint8_t { kOperation, kAnnotation };

struct Range {
  uint64_t session; // the session that reported it; later sessions ignore it
  uint64_t id;
  std::shared_ptr<const Range> outer; // null, or a range of the same session
};
using RangeRef = std::shared_ptr<const Range>;

// Opens a range on the calling thread.
void enter_range(RangeKind kind, uint64_t session, uint64_t id);
void leave_range(RangeKind kind, uint64_t session);
RangeRef innermost_range(RangeKind kind, uint64_t session); // null outside of all ranges

// The next sessions of this thread record the ranges of all threads, until the same thread switches this off; until then PyTorch's warnings
// are off on it. torch.profiler can do that too (profile_all_threads), but its queues break if a thread is within an operation when it
// ends.
void set_all_threads(bool on);
bool all_threads();

// Collects the ranges of all threads from the dispatcher.
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
  // Returns the ranges that began and ended since start(), at most kMaxEntries.
  std::vector<Entry> stop();

  static constexpr size_t kMaxEntries = 1 << 20;

 private:
  at::CallbackHandle handle_ = 0; // 0: not started
};

} // namespace torch_xla
