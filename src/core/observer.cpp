// The list of observers, and the metrics that events feed.
#include "core/observer.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "core/host_activity.h"
#include "core/metrics.h"
#include "core/process.h"

namespace torch_xla::observer {
namespace {

constexpr const char* kPhaseTexts[kNumPhases] = {
    "record",
    "trace",
    "sync",
    "compile",
    "pass",
    "queue",
    "run",
    "kernel",
    "library",
    "update",
    "upload",
    "download",
    "fallback",
    "wait",
    "optimizer",
    "replicated"};

void add_time(metrics::Metric& metric, const Event& event) {
  metric.add(static_cast<double>(event.end_ns - event.start_ns), event.end_ns);
}

void add_bytes(metrics::Metric& metric, const Event& event) {
  if (event.bytes >= 0) {
    metric.add(static_cast<double>(event.bytes), event.end_ns);
  }
}

// Under the original's names.
void add_to_metrics(const Event& event) {
  using metrics::Metric;
  using metrics::Unit;
  static Metric compile("CompileTime", Unit::kTime);
  static Metric replan("ReplanTime", Unit::kTime);
  static Metric compile_one("EagerOpCompileTime", Unit::kTime);
  static Metric run("ExecuteTime", Unit::kTime);
  static Metric run_one("EagerOpExecuteTime", Unit::kTime);
  static Metric upload("TransferToDeviceTime", Unit::kTime);
  static Metric to_data("TensorToData", Unit::kTime); // the original's other name for it
  static Metric download("TransferFromDeviceTime", Unit::kTime);
  static Metric outbound("OutboundData", Unit::kBytes);
  static Metric inbound("InboundData", Unit::kBytes);
  switch (event.phase) {
    case Phase::kCompile:
      return add_time(event.is_replan ? replan : event.name.empty() ? compile : compile_one, event);
    case Phase::kRun:
      return add_time(event.name.empty() ? run : run_one, event);
    case Phase::kUpload:
      add_bytes(outbound, event);
      add_time(to_data, event);
      return add_time(upload, event);
    case Phase::kDownload:
      add_bytes(inbound, event);
      return add_time(download, event);
    default:
      return;
  }
}

struct Listener {
  Observer* observer;
  uint32_t phases;
};

struct Observers {
  std::mutex mutex; // held during the calls
  std::vector<Listener> list; // guarded by mutex

  // The caller holds the lock.
  void tell_phases() const {
    uint32_t phases = 0;
    for (const Listener& listener : list) {
      phases |= listener.phases;
    }
    detail::phases = phases;
  }
};

Observers& observers() {
  static auto* all = [] {
    auto* made = new Observers;
    process::keep_sound(made->mutex);
    return made;
  }();
  return *all;
}

} // namespace

const char* phase_text(Phase phase) {
  return kPhaseTexts[static_cast<size_t>(phase)];
}

void add(Observer& observer, uint32_t phases) {
  Observers& all = observers();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.list.push_back({&observer, phases});
  all.tell_phases();
}

void remove(Observer& observer) {
  Observers& all = observers();
  std::lock_guard<std::mutex> lock(all.mutex);
  std::erase_if(all.list, [&observer](const Listener& listener) { return listener.observer == &observer; });
  all.tell_phases();
}

std::unique_lock<std::mutex> hold_events() {
  return std::unique_lock(observers().mutex);
}

void report(const Event& event) {
  if (is_counted(event.phase)) {
    add_to_metrics(event);
  }
  if (!is_on(event.phase)) {
    return;
  }
  Event placed = event;
  placed.operations = host_activity::num_operations.load(std::memory_order_relaxed);
  Observers& all = observers();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (const Listener& listener : all.list) {
    if (listener.phases & phase_bits(event.phase)) {
      listener.observer->on_event(placed);
    }
  }
}

void Span::begin(const Event& event) {
  event_ = event;
  event_.start_ns = metrics::now_ns();
}

void Span::end() {
  event_.end_ns = metrics::now_ns();
  report(event_);
}

} // namespace torch_xla::observer
