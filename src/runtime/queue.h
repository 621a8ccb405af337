// The queued runs of each device, shared by the executors' threads and their users. Only for files of this folder.
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
  // The device's thread sets them when the run starts; only that thread reads them.
  int64_t start_ns = 0;
  std::function<void()> wait_for_end = {}; // empty: it has ended
};

// The queue of one device. Guarded by wait::mutex().
struct Queue {
  int device = 0; // never changes
  std::deque<QueuedRun> runs;
  size_t num_started = 0; // runs at the front that have started
  std::thread::id caller; // the thread that runs the first one itself; none: the device's thread does
  std::exception_ptr first_error; // not raised yet
  std::condition_variable work; // the thread waits here
  bool has_thread = false;
  bool holds_processors = false; // its thread has run a program since it last left the processors
  bool tells = false; // a run has ended, and waiting threads must be woken; not guarded: only the thread of the first run uses it
  bool gives_way = false; // its thread must leave the processors now
  uint64_t last_run = 0; // the newest run's number
  int64_t num_needed = 0; // runs in a row with a read after them, of their results or of the next run's
  int64_t num_short = 0; // short programs in a row, for the thread that enqueued them
  bool was_cancelled = false; // by an interrupt before settle()
};

// All guarded by wait::mutex(); never destroyed.
struct Queues {
  Queues();

  std::array<Queue, kMaxDevices> of_device;
  CancelFlag cancel = std::make_shared<std::atomic<bool>>(false); // of future runs
  uint64_t num_queued = 0; // since the process began
  bool has_exit_handler = false;
  bool stop = false;
  bool gave_up = false; // a wait for the last runs of the process was too long
};

Queues& queues();
inline Queue& queue(int device) {
  return queues().of_device[static_cast<size_t>(device)];
}

// The devices with queues that pass the test. The caller holds the lock.
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

// The device's thread, without the lock. start_run() hands the run to its program and fills the outputs that are known by then; end() waits
// for the run's end. Neither throws: an error goes to the outputs and to Queue::first_error.
void start_run(Queue& q, QueuedRun& queued);
void end_run(Queue& q, QueuedRun& queued);

} // namespace torch_xla
