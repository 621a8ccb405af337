// The open ranges of each thread, and the log of all threads' ranges.
#include "device/host_ranges.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "core/metrics.h"

namespace torch_xla {
namespace {

thread_local RangeRef innermost[2]; // by kind

std::atomic<bool> is_all_threads{false};

// Of the session that records all threads. A thread in a range keeps it after the session's end.
struct Log {
  explicit Log(uint64_t number) : session(number) {}

  const uint64_t session;
  std::atomic<uint64_t> num_ranges{0};
  std::mutex mutex; // guards all below
  bool is_open = true;
  std::vector<HostRanges::Entry> entries;
};
using LogRef = std::shared_ptr<Log>;

// Leaf locks: no other lock is taken under them.
std::mutex current_mutex;
LogRef current; // guarded by it

struct Open final : at::ObserverContext {
  LogRef log;
  uint64_t id = 0;
  int64_t start_ns = 0;
};

// torch.profiler warns of operations in a trace that it has not reported itself.
class Silent final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

RangeKind kind_of(const at::RecordFunction& function) {
  return function.scope() == at::RecordScope::USER_SCOPE ? RangeKind::kAnnotation : RangeKind::kOperation;
}

std::unique_ptr<at::ObserverContext> on_enter(const at::RecordFunction& function) {
  auto open = std::make_unique<Open>();
  {
    std::lock_guard<std::mutex> lock(current_mutex);
    open->log = current;
  }
  if (!open->log) {
    return nullptr;
  }
  open->id = ++open->log->num_ranges;
  open->start_ns = metrics::now_ns();
  enter_range(kind_of(function), open->log->session, open->id);
  return open;
}

void on_leave(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* open = static_cast<Open*>(context);
  if (!open) {
    return;
  }
  const RangeKind kind = kind_of(function);
  leave_range(kind, open->log->session);
  std::lock_guard<std::mutex> lock(open->log->mutex);
  if (open->log->is_open && open->log->entries.size() < HostRanges::kMaxEntries) {
    open->log->entries.push_back({kind, open->id, function.name(), gettid(), open->start_ns, metrics::now_ns()});
  }
}

RangeRef& innermost_of(RangeKind kind) {
  return innermost[static_cast<size_t>(kind)];
}

} // namespace

RangeRef innermost_range(RangeKind kind, uint64_t session) {
  const RangeRef& range = innermost_of(kind);
  return range && range->session == session ? range : nullptr;
}

void enter_range(RangeKind kind, uint64_t session, uint64_t id) {
  innermost_of(kind) = std::make_shared<Range>(Range{session, id, innermost_range(kind, session)});
}

void leave_range(RangeKind kind, uint64_t session) {
  if (RangeRef left = innermost_range(kind, session)) {
    innermost_of(kind) = left->outer;
  }
}

void set_all_threads(bool on) {
  static Silent silent;
  thread_local c10::WarningHandler* usual = nullptr;
  if (on != is_all_threads.exchange(on)) {
    usual = on ? c10::WarningUtils::get_warning_handler() : usual;
    c10::WarningUtils::set_warning_handler(on ? &silent : usual);
  }
}
bool all_threads() {
  return is_all_threads;
}

HostRanges::~HostRanges() {
  stop();
}

void HostRanges::start(uint64_t session) {
  {
    std::lock_guard<std::mutex> lock(current_mutex);
    current = std::make_shared<Log>(session);
  }
  using at::RecordScope;
  at::RecordFunctionCallback callback(&on_enter, &on_leave);
  callback.scopes({RecordScope::FUNCTION, RecordScope::BACKWARD_FUNCTION, RecordScope::TORCHSCRIPT_FUNCTION, RecordScope::USER_SCOPE});
  handle_ = at::addGlobalCallback(callback);
}

std::vector<HostRanges::Entry> HostRanges::stop() {
  if (handle_ == 0) {
    return {};
  }
  at::removeCallback(std::exchange(handle_, 0));
  LogRef log;
  {
    std::lock_guard<std::mutex> lock(current_mutex);
    log = std::exchange(current, nullptr);
  }
  std::lock_guard<std::mutex> lock(log->mutex);
  log->is_open = false;
  return std::move(log->entries);
}

} // namespace torch_xla
