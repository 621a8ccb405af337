// Logs of the step observer's events: of the last steps at all times, for explain(), and of everything while a test or tool asks for it.
#include "core/observer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/metrics.h"
#include "device/host_profile.h"
#include "device/host_ranges.h"
#include "python/bindings.h"
#include "trace/source_line.h"

namespace torch_xla {
namespace {

using observer::Phase;

// The last events, so many at most.
class EventLog final : public observer::Observer {
 public:
  explicit EventLog(size_t capacity) : capacity_(capacity) {}

  void on_event(const observer::Event& event) override {
    if (entries_.size() < capacity_) {
      entries_.emplace_back();
    }
    Entry& entry = entries_[next_];
    next_ = (next_ + 1) % capacity_;
    entry.event = event;
    entry.name = event.name; // reuses the overwritten entry's memory
    if (!entry.detail.empty() || !event.detail.empty()) {
      entry.detail = event.detail;
    }
  }

  void clear() {
    const auto lock = observer::hold_events();
    entries_.clear();
    next_ = 0;
  }

  py::list to_list() const {
    using namespace py::literals;
    py::list list;
    for (const auto& [event, name, detail] : copy()) {
      list.append(py::dict(
          "phase"_a = observer::phase_text(event.phase),
          "name"_a = name,
          "detail"_a = detail,
          "start_ns"_a = event.start_ns,
          "end_ns"_a = event.end_ns,
          "line"_a = location_text(event.line),
          "call"_a = location_text(event.call),
          "device"_a = event.device,
          "bytes"_a = event.bytes,
          "nodes"_a = event.nodes,
          "content"_a = event.content,
          "run"_a = event.run,
          "operations"_a = event.operations));
    }
    return list;
  }

 private:
  struct Entry {
    observer::Event event; // its texts are gone
    std::string name;
    std::string detail;
  };

  // The oldest first.
  std::vector<Entry> copy() const {
    const auto lock = observer::hold_events();
    std::vector<Entry> entries = entries_;
    if (entries.size() == capacity_) {
      std::rotate(entries.begin(), entries.begin() + static_cast<ptrdiff_t>(next_), entries.end());
    }
    return entries;
  }

  const size_t capacity_;
  std::vector<Entry> entries_; // guarded by hold_events(), as next_
  size_t next_ = 0; // the place of the next event; the oldest one's, when it is full
};

constexpr size_t kMaxEvents = 1 << 20;
std::unique_ptr<EventLog> active; // guarded by the GIL

void start_events() {
  if (active) {
    throw py::value_error("events are being recorded already");
  }
  active = std::make_unique<EventLog>(kMaxEvents);
  observer::add(*active);
}

py::list stop_events() {
  if (!active) {
    throw py::value_error("no events are being recorded");
  }
  {
    const py::gil_scoped_release no_gil;
    observer::remove(*active);
  }
  return std::exchange(active, nullptr)->to_list();
}

// The log for explain(): a few events for each step, none for an operation or a kernel. Half a megabyte at most; about 500 steps.
constexpr size_t kHistoryEvents = 4096;
constexpr uint32_t kHistoryPhases = observer::phase_bits(
    Phase::kTrace,
    Phase::kSync,
    Phase::kCompile,
    Phase::kRun,
    Phase::kUpload,
    Phase::kDownload,
    Phase::kFallback,
    Phase::kWait,
    Phase::kOptimizer,
    Phase::kReplicated);

EventLog& history() {
  static auto* log = new EventLog(kHistoryEvents); // the device's threads report events until the process ends
  return *log;
}

// `number` identifies the optimizer; `replaces`: another optimizer stepped its parameters before.
void note_optimizer(const std::string& name, uint64_t number, bool replaces, int device) {
  const int64_t now = metrics::now_ns();
  observer::report(
      {.phase = Phase::kOptimizer,
       .name = name,
       .detail = replaces ? "replaces" : "",
       .start_ns = now,
       .end_ns = now,
       .line = current_location(),
       .device = device,
       .content = number});
}

void note_replicated(const std::string& name, const std::string& reason, int device) {
  const int64_t now = metrics::now_ns();
  observer::report(
      {.phase = Phase::kReplicated,
       .name = name,
       .detail = reason,
       .start_ns = now,
       .end_ns = now,
       .line = current_location(),
       .device = device});
}

} // namespace

void init_observer(py::module_& m) {
  observer::add(history(), kHistoryPhases);
  m.def("_start_events", &start_events);
  m.def("_stop_events", &stop_events);
  py::class_<HostProfile>(m, "_HostProfile")
      .def(py::init<>(), py::call_guard<py::gil_scoped_release>())
      .def("close", &HostProfile::close, py::call_guard<py::gil_scoped_release>());
  m.attr("_HISTORY_EVENTS") = kHistoryEvents;
  m.def("_history", [] { return history().to_list(); });
  m.def("_clear_history", [] { history().clear(); });
  m.def("_profile_all_threads", &set_all_threads, py::arg("on"));
  m.def("_note_optimizer", &note_optimizer, py::arg("name"), py::arg("number"), py::arg("replaces"), py::arg("device"));
  m.def("_note_replicated", &note_replicated, py::arg("name"), py::arg("reason"), py::arg("device"));
}

} // namespace torch_xla
