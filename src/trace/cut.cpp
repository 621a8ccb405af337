// Cuts of traces that grow without a sync: always at the same place of their loop.
#include "trace/cut.h"

#include <algorithm>
#include <limits>

#include "engine/engine.h"
#include "trace/trace.h"

namespace torch_xla {
namespace {

// A trace is cut at its next repeat past the engine's limits, or with so many bytes that only the trace keeps alive: batches of a loop over
// data that reads only a sum at its end.
constexpr int64_t kMaxOrphanedBytes = kFirstInputCheck;
// Cuts a trace that never repeats.
constexpr size_t kHardMaxNodes = 1 << 18;
constexpr int64_t kHardMaxOrphanedBytes = int64_t{1} << 30;

int64_t alive_bytes(Trace& trace) {
  int64_t bytes = 0;
  for (size_t i = 0; i < trace.lazies().size(); ++i) {
    LazyValue* value = trace.lazies()[i];
    if (value && value->refs() > 1) {
      bytes += trace.graph().values[i].type.nbytes();
    }
  }
  return bytes;
}

// For all i: length of the longest common prefix of the reversed hashes and their suffix from i (Z-function).
std::vector<size_t> reversed_matches(const std::vector<uint64_t>& hashes) {
  size_t n = hashes.size();
  auto at = [&](size_t i) { return hashes[n - 1 - i]; };
  std::vector<size_t> z(n, 0);
  for (size_t i = 1, left = 0, right = 0; i < n; ++i) {
    if (i < right) {
      z[i] = std::min(right - i, z[i - left]);
    }
    while (i + z[i] < n && at(z[i]) == at(i + z[i])) {
      ++z[i];
    }
    if (i + z[i] > right) {
      left = i;
      right = i + z[i];
    }
  }
  return z;
}

// The number of nodes until the cut: 0 now, or the nodes missing to whole turns if the trace is nothing but the loop. SIZE_MAX if the end
// of the trace does not repeat.
size_t nodes_until_cut(const std::vector<uint64_t>& hashes) {
  size_t n = hashes.size();
  std::vector<size_t> z = reversed_matches(hashes);
  for (size_t period = 1; period <= n / 2; ++period) {
    if (z[period] >= period) {
      bool whole = z[period] == n - period;
      return whole ? (period - n % period) % period : 0;
    }
  }
  return SIZE_MAX;
}

} // namespace

bool is_due(Trace& trace) {
  return trace.graph().nodes.size() >= trace.cut().next_check || trace.input_bytes() >= trace.cut().next_input_check;
}

bool is_cut_now(Trace& trace, bool is_lazy) {
  size_t n = trace.graph().nodes.size();
  CutPlan& cut = trace.cut();
  if (!is_lazy || n >= kHardMaxNodes) {
    return true;
  }
  if (!is_due(trace)) {
    return false;
  }
  if (cut.is_planned) {
    return true;
  }
  const int64_t orphaned = trace.orphaned_bytes();
  cut.next_input_check = trace.input_bytes() + kFirstInputCheck;
  const TraceLimits limits = engine().trace_limits();
  if (n < limits.nodes && orphaned < kMaxOrphanedBytes && alive_bytes(trace) < limits.held_bytes) {
    cut.next_check = n + kFirstTraceCheck;
    return false;
  }
  size_t wait = nodes_until_cut(trace.node_hashes());
  if (wait == SIZE_MAX) {
    cut.next_check = std::max(n * 2, kFirstTraceCheck);
    return orphaned >= kHardMaxOrphanedBytes;
  }
  cut.is_planned = true;
  cut.next_check = n + wait;
  cut.next_input_check = std::numeric_limits<int64_t>::max();
  return wait == 0;
}

} // namespace torch_xla
