// A log of the step observer's events, for tests and tools.
#include "core/observer.h"

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "python/bindings.h"
#include "tensor/source_line.h"

namespace torch_xla {
namespace {

class EventLog final : public observer::Observer {
 public:
  void on_event(const observer::Event& event) override {
    if (events_.size() < kMaxEvents) {
      events_.push_back({event, std::string(event.name)});
    }
  }

  // To be called when the log is no observer any more.
  py::list to_list() const {
    using namespace py::literals;
    py::list list;
    for (const auto& [event, name] : events_) {
      list.append(py::dict(
          "phase"_a = observer::phase_text(event.phase),
          "name"_a = name,
          "start_ns"_a = event.start_ns,
          "end_ns"_a = event.end_ns,
          "line"_a = location_text(event.line),
          "device"_a = event.device,
          "bytes"_a = event.bytes,
          "run"_a = event.run));
    }
    return list;
  }

 private:
  static constexpr size_t kMaxEvents = 1 << 20;
  struct Entry {
    observer::Event event; // its name is gone
    std::string name;
  };
  std::vector<Entry> events_;
};

std::unique_ptr<EventLog> active; // guarded by the GIL

void start_events() {
  if (active) {
    throw py::value_error("events are being recorded already");
  }
  active = std::make_unique<EventLog>();
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

} // namespace

void init_observer(py::module_& m) {
  m.def("_start_events", &start_events);
  m.def("_stop_events", &stop_events);
}

} // namespace torch_xla
