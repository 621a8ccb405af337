// The list of observers, and the metrics that events feed.
#include "core/observer.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "core/metrics.h"
#include "core/process.h"

namespace torch_xla::observer {
namespace {

constexpr const char* kPhaseTexts[kNumPhases] = {
    "record", "sync", "compile", "pass", "queue", "run", "kernel", "library", "update", "upload", "download", "fallback"};

void add_time(metrics::Metric& metric, const Event& event) {
  metric.add(static_cast<double>(event.end_ns - event.start_ns));
}

void add_bytes(metrics::Metric& metric, const Event& event) {
  if (event.bytes >= 0) {
    metric.add(static_cast<double>(event.bytes));
  }
}

// Under the original's names.
void add_to_metrics(const Event& event) {
  using metrics::Metric;
  using metrics::Unit;
  static Metric compile("CompileTime", Unit::kTime);
  static Metric compile_one("EagerOpCompileTime", Unit::kTime);
  static Metric run("ExecuteTime", Unit::kTime);
  static Metric run_one("EagerOpExecuteTime", Unit::kTime);
  static Metric upload("TransferToDeviceTime", Unit::kTime);
  static Metric download("TransferFromDeviceTime", Unit::kTime);
  static Metric outbound("OutboundData", Unit::kBytes);
  static Metric inbound("InboundData", Unit::kBytes);
  switch (event.phase) {
    case Phase::kCompile:
      return add_time(event.name.empty() ? compile : compile_one, event);
    case Phase::kRun:
      return add_time(event.name.empty() ? run : run_one, event);
    case Phase::kUpload:
      add_bytes(outbound, event);
      return add_time(upload, event);
    case Phase::kDownload:
      add_bytes(inbound, event);
      return add_time(download, event);
    default:
      return;
  }
}

struct Observers {
  std::mutex mutex; // held during the calls
  std::vector<Observer*> list; // guarded by mutex
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

void add(Observer& observer) {
  Observers& all = observers();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.list.push_back(&observer);
  detail::on = true;
}

void remove(Observer& observer) {
  Observers& all = observers();
  std::lock_guard<std::mutex> lock(all.mutex);
  std::erase(all.list, &observer);
  detail::on = !all.list.empty();
}

void report(const Event& event) {
  if (is_counted(event.phase)) {
    add_to_metrics(event);
  }
  if (!is_on()) {
    return;
  }
  Observers& all = observers();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (Observer* observer : all.list) {
    observer->on_event(event);
  }
}

void Span::begin(Phase phase, int device, std::string_view name, int64_t line) {
  event_ = {.phase = phase, .name = name, .start_ns = metrics::now_ns(), .line = line, .device = device};
}

void Span::end() {
  event_.end_ns = metrics::now_ns();
  report(event_);
}

} // namespace torch_xla::observer
