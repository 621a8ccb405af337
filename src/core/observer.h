// The step observer: reports the device's events as they happen. Metrics, profilers and timelines all listen here.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace torch_xla::observer {

enum class Phase : uint8_t {
  kRecord, // an operation was appended to the trace; has no length
  kTrace, // a trace, from its first operation to its sync
  kSync, // a trace became a queued run: lookup, compile, enqueue
  kCompile, // a program that was not in the cache; named by its operation in eager mode
  kPass, // one part of a compile: a pass over the graph, a stage of the schedule, a kernel's code
  kQueue, // a run waited for those before it
  kRun, // a program ran; named as kCompile
  kKernel, // a step of a run: a fused kernel,
  kLibrary, // a call of ATen's,
  kUpdate, // or a write through a view
  kUpload, // host to device
  kDownload, // device to host
  kFallback, // an operation ran on the CPU, operands and results included
  kWait, // a sync waited for the runs before it
  kOptimizer, // an optimizer of PyTorch's recorded its step; has no length
  kReplicated, // an operation over processes ran on the whole values on each; has no length
};
constexpr int kNumPhases = 16;
const char* phase_text(Phase phase); // "record", "sync", ...

// One bit for each of the phases.
template <typename... Phases>
constexpr uint32_t phase_bits(Phases... phases) {
  return ((uint32_t{1} << static_cast<uint32_t>(phases)) | ...);
}
constexpr uint32_t kAllPhases = (uint32_t{1} << kNumPhases) - 1;

// The device of an event that belongs to all devices: the compile of a kernel that their programs share.
constexpr int kNoDevice = -1;

// A compiled program. Sizes are in bytes.
struct Program {
  std::string_view hash; // of the trace, its settings and its output values; valid while the observer is called
  int64_t inputs = 0; // tensors, numbers, and the random state if the program draws
  int64_t outputs = 0;
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  int64_t aliased_bytes = 0; // inputs that give their memory to an output
  int64_t scratch_bytes = 0; // memory of a run besides inputs and outputs
  int64_t code_bytes = 0;
};

struct Event {
  Phase phase = Phase::kRecord;
  // The name of the operation, pass, kernel, call or optimizer's class; the cause of a sync; the use of a read. `name` and `detail` are
  // valid while the observer is called.
  std::string_view name = {};
  std::string_view detail = {}; // a fallback's or replication's reason, a compile's cause, "replaces": with another optimizer's parameters
  int64_t start_ns = 0; // of metrics::now_ns()
  int64_t end_ns = 0;
  int64_t line = -1; // id of the user's line (location_text() of trace/source_line.h), or -1
  int64_t call = -1; // kDownload: id of the name of the Python function of PyTorch that this line called, or -1
  int device = kNoDevice;
  int64_t bytes = -1; // kUpload, successful kDownload; kLibrary: a collective's operands
  int64_t nodes = -1; // kTrace
  int32_t node = -1; // kRecord: its number in the trace; kKernel, kLibrary, kUpdate: the node that names the step
  uint64_t content = 0; // kUpload: hash_sample() of the user's bytes; kOptimizer: tells optimizers apart
  bool is_replan = false; // kCompile: the structure was known and its code existed
  const Program* program = nullptr; // kCompile, kSync: where analyses are printed; valid as `name`
  uint32_t operations = 0; // operations of the process so far, modulo 2^32: the event's place in the program. Set by report()
  uint64_t run = 0; // number of the run, from 1 on, for its sync, queue, run and steps; 0: no run
};

// Called on any thread, one at a time, also under the recording lock: takes no GIL, uses no tensors of the device, and is quick.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_event(const Event& event) = 0;
};

// The observer is called for these phases.
void add(Observer& observer, uint32_t phases = kAllPhases);
// After it returns the observer is not called any more.
void remove(Observer& observer);
// While it lives no observer is called: for those who read what an observer has gathered. Not within on_event().
std::unique_lock<std::mutex> hold_events();

namespace detail {
inline std::atomic<uint32_t> phases{0}; // union of the observers' phases
} // namespace detail

// Whether an observer wants the phase. Without one an event costs only this relaxed load, and the metrics of its phase.
inline bool is_on(Phase phase) {
  return detail::phases.load(std::memory_order_relaxed) & phase_bits(phase);
}

// Whether metrics count the phase, also without an observer.
constexpr bool is_counted(Phase phase) {
  return phase == Phase::kCompile || phase == Phase::kRun || phase == Phase::kUpload || phase == Phase::kDownload;
}

// Adds the event to the metrics of its phase and calls the observers.
void report(const Event& event);

// An event that begins and ends with the object, on one thread.
class Span {
 public:
  Span(Phase phase, int device, std::string_view name = {}, int64_t line = -1, int64_t call = -1)
      : told_(is_on(phase) || is_counted(phase)) {
    if (told_) {
      begin({.phase = phase, .name = name, .line = line, .call = call, .device = device});
    }
  }
  // From event.start_ns on.
  explicit Span(const Event& event) : event_(event), told_(is_on(event.phase) || is_counted(event.phase)) {}
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
  void set_node(int32_t node) {
    event_.node = node;
  }
  void set_detail(std::string_view detail) {
    event_.detail = detail;
  }
  void set_replan() {
    event_.is_replan = true;
  }
  void set_content(uint64_t content) {
    event_.content = content;
  }
  // Lives as long as the span.
  void set_program(const Program& program) {
    event_.program = &program;
  }

 private:
  void begin(const Event& event);
  void end();

  Event event_;
  bool told_;
};

} // namespace torch_xla::observer
