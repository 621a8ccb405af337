// The recorder of each thread: recorders travel in at::ThreadLocalState.
#include "trace/recorder.h"

#include <ATen/ThreadLocalPythonObjects.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/env.h"
#include "core/errors.h"
#include "core/process.h"
#include "engine/engine.h"
#include "runtime/interrupt.h"
#include "trace/torch_errors.h"
#include "trace/trace.h"
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace torch_xla {

using at::impl::ThreadLocalPythonObjects;

namespace {

// Explicit instantiations may name private members. A lookup by get() takes 25 ns, a tenth of recording an operation.
template <auto member>
struct Access {
  friend const auto& objects_of(const ThreadLocalPythonObjects& state) {
    return state.*member;
  }
};
template struct Access<&ThreadLocalPythonObjects::obj_dict_>;
const auto& objects_of(const ThreadLocalPythonObjects& state);

constexpr std::string_view kKey = "xla"; // among PyTorch's own names

// The time that a thread waits for a recording lock between two checks for signals.
constexpr auto kPollInterval = std::chrono::milliseconds(50);

struct Own {
  std::shared_ptr<Recorder> recorder;

  ~Own() {
    if (recorder) {
      recorder->leave();
    }
  }
};
thread_local Own own;
thread_local constinit bool is_known [[gnu::tls_model("initial-exec")]] = false; // the layer above knows that this thread records

Recorder& enter_own() {
  if (!own.recorder) {
    own.recorder = std::make_shared<Recorder>();
  }
  auto* object = reinterpret_cast<c10::SafePyObject*>(own.recorder.get());
  ThreadLocalPythonObjects::set(std::string(kKey), std::shared_ptr<c10::SafePyObject>(own.recorder, object));
  return *own.recorder;
}

} // namespace

// at::ThreadLocalState copies a map of names to shared pointers, mostly empty. Our entry is no Python object; only this file reads it.
Recorder& Recorder::current() {
  static thread_local constinit const ThreadLocalPythonObjects* state [[gnu::tls_model("initial-exec")]] = nullptr; // this thread's slot
  if (!state) [[unlikely]] {
    state = &ThreadLocalPythonObjects::get_state();
  }
  for (const auto& [name, object] : objects_of(*state)) {
    if (name == kKey) [[likely]] {
      return *reinterpret_cast<Recorder*>(object.get());
    }
  }
  return enter_own();
}

Trace& Recorder::make_trace(int device) {
  auto made = std::make_shared<Trace>(device);
  DeviceState& state = device_state(device);
  std::erase_if(state.traces, [](const auto& trace) { return trace.use_count() == 1 && trace->empty(); }); // of ended threads
  state.traces.push_back(made);
  std::lock_guard<std::mutex> lock(mutex_);
  traces_.push_back(made);
  Slot& slot = slots_[static_cast<size_t>(device)];
  slot.own.store(made.get(), std::memory_order_release);
  slot.innermost = made.get();
  return *made;
}

void Recorder::set_capture(int device, Capture* capture, Trace* trace, uint32_t number) {
  Slot& slot = slots_[static_cast<size_t>(device)];
  num_captures_ += (capture ? 1 : 0) - (slot.capture ? 1 : 0);
  slot.capture = capture;
  slot.innermost = capture ? trace : slot.own.load();
  slot.number.store(number, std::memory_order_relaxed);
}

bool Recorder::is_lazy() const {
  const Mode mode = mode_.load(std::memory_order_relaxed);
  return mode == Mode::kDefault ? env::lazy() : mode == Mode::kLazy;
}

std::optional<bool> Recorder::set_lazy(std::optional<bool> on) {
  const Mode mode = on ? (*on ? Mode::kLazy : Mode::kEager) : Mode::kDefault;
  const Mode before = mode_.exchange(mode);
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& trace : traces_) {
    trace->cut().wanted.store(true, std::memory_order_relaxed); // check again
  }
  return before == Mode::kDefault ? std::nullopt : std::make_optional(before == Mode::kLazy);
}

std::pair<int64_t, int64_t> Recorder::counts() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::pair<int64_t, int64_t> sums;
  for (const auto& trace : traces_) {
    sums.first += trace->num_runs.load();
    sums.second += trace->num_programs.load();
  }
  return sums;
}

void Recorder::leave() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& trace : traces_) {
    trace->is_left.store(true);
  }
}

void set_lazy_mode(bool on) {
  env::set_lazy(on);
  for (int device = 0; process::is_used() && device < num_devices(); ++device) {
    auto lock = lock_recorder(device);
    for (const auto& trace : device_state(device).traces) {
      trace->cut().wanted.store(true, std::memory_order_relaxed); // check again
    }
  }
}

uint64_t leave_own_recorder() {
  is_known = false;
  if (!own.recorder) {
    return 0;
  }
  const std::shared_ptr<Recorder> left = std::exchange(own.recorder, nullptr);
  left->leave();
  if (&Recorder::current() == left.get()) {
    enter_own();
  }
  return left->number;
}

DeviceState& device_state(int device) {
  static auto* states = (process::note_use(), new std::array<DeviceState, kMaxDevices>); // leaked: cells may outlive static destruction
  return (*states)[static_cast<size_t>(device)];
}

static DeviceState& state_to_lock(int device) {
  DeviceState& state = device_state(device);
  try {
    process::check();
    engine(); // the search for a plugin takes the GIL
  } catch (const UserError& error) {
    throw_as_torch_error(error);
  }
  if (!is_known) [[unlikely]] {
    is_known = true;
    interrupt::begin_thread();
  }
  return state;
}

// As lock.try_lock_for(limit), whose pthread_mutex_clocklock() GCC 12's ThreadSanitizer does not see.
static bool try_lock_for(RecordingLock& lock, std::chrono::milliseconds limit) {
  const bool locked = lock.try_lock_for(limit);
#ifdef __SANITIZE_THREAD__
  if (locked) {
    __tsan_mutex_pre_lock(lock.mutex()->native_handle(), __tsan_mutex_try_lock);
    __tsan_mutex_post_lock(lock.mutex()->native_handle(), __tsan_mutex_try_lock, 0);
  }
#endif
  return locked;
}

RecordingLock lock_recorder(int device) {
  std::unique_lock lock(state_to_lock(device).mutex, std::try_to_lock);
  if (!lock) {
    interrupt::NoGil no_gil; // the lock's owner may take it
    while (!try_lock_for(lock, kPollInterval)) {
      interrupt::hear_signals();
    }
  }
  return lock;
}

RecordingLock lock_recorder_uninterrupted(int device, std::optional<std::chrono::milliseconds> limit) {
  std::unique_lock lock(state_to_lock(device).mutex, std::try_to_lock);
  if (!lock) {
    interrupt::NoGil no_gil;
    limit ? static_cast<void>(try_lock_for(lock, *limit)) : lock.lock();
  }
  return lock;
}

int64_t live_nodes() {
  int64_t nodes = 0;
  for (int device = 0; device < num_devices(); ++device) {
    auto lock = lock_recorder(device);
    for (const auto& trace : device_state(device).traces) {
      nodes += static_cast<int64_t>(trace->graph().nodes.size());
    }
  }
  return nodes;
}

} // namespace torch_xla
