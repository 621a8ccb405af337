// What the executors' threads and their users share: the queued runs of each device. For the files of this folder alone.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "core/devices.h"
#include "core/memory_log.h"
#include "runtime/executor.h"

namespace torch_xla {

using CancelFlag = std::shared_ptr<std::atomic<bool>>;

struct QueuedRun {
  Run run;
  int64_t queued_ns = 0;
  memory_log::Caller caller = {};
  // Set when the run is started, by the device's thread, which alone reads them.
  int64_t start_ns = 0;
  std::function<void()> wait_for_end = {}; // empty: it has ended
};

// Of one device. Guarded by wait::mutex().
struct Queue {
  int device = 0; // never changes
  std::deque<QueuedRun> runs;
  size_t num_started = 0; // of the first ones
  std::thread::id caller; // that runs the first one itself and waits for it; none: the device's thread runs it
  std::exception_ptr first_error; // that nobody has been told
  std::condition_variable work; // the thread waits here
  bool has_thread = false;
  bool holds_processors = false; // its thread has run something since it last left the processors to others
  bool tells = false; // a run has ended, and threads that wait have yet to be woken; not guarded: of the thread that runs the first one
  bool gives_way = false; // its thread is to leave them now
  uint64_t last_run = 0; // the number of the newest one
  int64_t num_needed = 0; // runs in a row that a read followed, of their results or of the next one's
  int64_t num_short = 0; // programs in a row that were short for the thread that enqueued them
  bool was_cancelled = false; // by an interrupt that has not been settled
};

// All guarded by wait::mutex(); never destroyed.
struct Queues {
  Queues();

  std::array<Queue, kMaxDevices> of_device;
  CancelFlag cancel = std::make_shared<std::atomic<bool>>(false); // of the runs that are queued from now on
  uint64_t num_queued = 0; // since the process began
  bool has_exit_handler = false;
  bool stop = false;
  bool gave_up = false; // a wait for the last runs of the process was too long
};

Queues& queues();
inline Queue& queue(int device) {
  return queues().of_device[static_cast<size_t>(device)];
}

// The devices whose queues are so. The caller holds the lock.
template <typename Test>
std::vector<int> find_devices(Test test) {
  std::vector<int> devices;
  for (int device = 0; device < kMaxDevices; ++device) {
    if (test(queue(device))) {
      devices.push_back(device);
    }
  }
  return devices;
}

// The handler of on_exit().
void stop_at_exit(int status, void* unused);

// The device's thread, without the lock. start_run() hands the run to its program and fills the outputs as far as they can be known; end()
// waits for the run's end. Neither throws: an error goes to the outputs and to Queue::first_error.
void start_run(Queue& q, QueuedRun& queued);
void end_run(Queue& q, QueuedRun& queued);

} // namespace torch_xla
