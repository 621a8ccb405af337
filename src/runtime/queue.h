// The queued runs of each device, shared by the executors' threads and their users. Only for files of this folder.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "core/devices.h"
#include "runtime/executor.h"

namespace torch_xla {

// The queue of one device. Guarded by wait::mutex().
struct Queue {
  int device = 0; // never changes
  std::deque<std::unique_ptr<Run>> runs;
  std::atomic<size_t> num_runs{0}; // their number, also for those without the lock
  size_t num_started = 0; // runs at the front that have started
  std::thread::id caller; // the thread that runs the first one itself; none: the device's thread does
  std::exception_ptr first_error; // not raised yet
  std::condition_variable work; // the thread waits here
  std::atomic<bool> is_started{false}; // it has a thread, and the process does not end; written with the lock
  bool holds_processors = false; // its thread has run a program since it last left the processors
  bool tells = false; // a run has ended, and waiting threads must be woken; not guarded: only the thread of the first run uses it
  bool gives_way = false; // its thread must leave the processors now
  uint64_t last_run = 0; // the newest run's number
  int64_t num_needed = 0; // runs in a row with a read after them, of their results or of the next run's
  int64_t num_short = 0; // short programs in a row, for the thread that enqueued them
  bool was_cancelled = false; // by an interrupt before settle()
  std::atomic<Run*> spare{nullptr}; // one that has ended, cleared, for the next one; not guarded
};

// All guarded by wait::mutex(); never destroyed.
struct Queues {
  Queues();

  std::array<Queue, kMaxDevices> of_device;
  uint64_t num_queued = 0; // since the process began
  std::atomic<uint64_t> first_kept{0}; // runs with lower numbers are cancelled; not guarded
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
// for the run's end and returns its time. Neither throws: an error goes to the outputs and to Queue::first_error.
void start_run(Queue& q, Run& run);
int64_t end_run(Queue& q, Run& run);

} // namespace torch_xla
