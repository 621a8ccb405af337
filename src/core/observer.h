// The step observer: tells what the device does, as it happens. Metrics, profilers and timelines all listen here.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace torch_xla::observer {

enum class Phase : uint8_t {
  kRecord, // an operation was appended to the trace; has no length
  kSync, // a trace became a queued run: lookup, compile, enqueue
  kCompile, // a program that was not in the cache; named by its operation in eager mode
  kPass, // one part of a compile: a pass over the graph, a stage of the schedule, a kernel's code
  kQueue, // a run waited for those before it
  kRun, // a program ran; named likewise
  kKernel, // a step of a run: a fused kernel,
  kLibrary, // a call of ATen's,
  kUpdate, // or a write through a view
  kUpload, // host to device
  kDownload, // device to host
  kFallback, // an operation ran on the CPU, operands and results included
};
constexpr int kNumPhases = 12;
const char* phase_text(Phase phase); // "record", "sync", ...

// Of an event that is all devices': the code of a kernel, which their programs share.
constexpr int kNoDevice = -1;

struct Event {
  Phase phase = Phase::kRecord;
  std::string_view name = {}; // of the operation, pass, kernel or call; valid while the observer is called
  int64_t start_ns = 0; // of metrics::now_ns()
  int64_t end_ns = 0;
  int64_t line = -1; // id of the user's line (location_text() in tensor/), or -1
  int device = kNoDevice;
  int64_t bytes = -1; // kUpload, kDownload that succeeded
  uint64_t run = 0; // the same number, from 1 on, for the sync, queue, run and steps of one run; 0: of none
};

// Called on any thread, one at a time, also under the recording lock: takes no GIL, uses no tensors of the device, and is quick.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_event(const Event& event) = 0;
};

void add(Observer& observer);
// When it returns the observer is not called any more.
void remove(Observer& observer);

namespace detail {
inline std::atomic<bool> on{false};
} // namespace detail

// Somebody listens. One relaxed load: all that an event costs otherwise, but for those that metrics count.
inline bool is_on() {
  return detail::on.load(std::memory_order_relaxed);
}

// The phases that metrics count, whether somebody listens or not.
constexpr bool is_counted(Phase phase) {
  return phase == Phase::kCompile || phase == Phase::kRun || phase == Phase::kUpload || phase == Phase::kDownload;
}

// Adds the event to the metrics of its phase and tells the observers.
void report(const Event& event);

// An event that begins and ends with the object, on one thread.
class Span {
 public:
  Span(Phase phase, int device, std::string_view name = {}, int64_t line = -1) : told_(is_on() || is_counted(phase)) {
    if (told_) {
      begin(phase, device, name, line);
    }
  }
  ~Span() {
    if (told_) {
      end();
    }
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  void set_bytes(int64_t bytes) {
    event_.bytes = bytes;
  }
  void set_run(uint64_t run) {
    event_.run = run;
  }

 private:
  void begin(Phase phase, int device, std::string_view name, int64_t line);
  void end();

  Event event_;
  bool told_;
};

} // namespace torch_xla::observer
