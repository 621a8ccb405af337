// The end of runs that fail or are cancelled: whose errors have been raised, and the waits for their end.
#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "core/process.h"
#include "runtime/queue.h"
#include "runtime/wait.h"

namespace torch_xla {
namespace {

// Longest wait for runs that should fail at once.
constexpr auto kSettleLimit = std::chrono::seconds(1);

// Waits a moment for the runs of the devices.
void settle_devices(const std::vector<int>& devices, std::unique_lock<std::mutex>& lock) {
  auto is_empty = [](int device) { return queue(device).runs.empty(); };
  wait::changed().wait_for(lock, kSettleLimit, [&] { return queues().stop || std::all_of(devices.begin(), devices.end(), is_empty); });
  for (int device : devices) {
    queue(device).was_cancelled = false;
  }
}

} // namespace

namespace wait {
bool is_news(const std::exception_ptr& error) {
  std::lock_guard<std::mutex> lock(mutex());
  return !find_devices([&](const Queue& q) { return q.first_error == error; }).empty();
}

void set_told(const std::exception_ptr& error) {
  std::lock_guard<std::mutex> lock(mutex());
  for (int device : find_devices([&](const Queue& q) { return q.first_error == error; })) {
    queue(device).first_error = nullptr;
  }
}

void cancel_runs() {
  Queues& all = queues();
  std::lock_guard<std::mutex> lock(mutex());
  all.first_kept = all.num_queued + 1;
  for (Queue& q : all.of_device) {
    q.was_cancelled = q.was_cancelled || !q.runs.empty();
  }
}

} // namespace wait

std::vector<int> Executor::settle(const std::exception_ptr& told) {
  if (process::in_forked_child()) {
    return {};
  }
  std::unique_lock<std::mutex> lock(wait::mutex());
  std::vector<int> devices = find_devices([this](const Queue& q) { return q.was_cancelled || q.device == device_; });
  settle_devices(devices, lock);
  for (int device : devices) {
    if (queue(device).first_error == told) {
      queue(device).first_error = nullptr;
    }
  }
  return devices;
}

bool Executor::finish(std::chrono::milliseconds limit) {
  if (process::in_forked_child()) {
    return true;
  }
  auto busy = [] { return find_devices([](const Queue& q) { return !q.runs.empty(); }); };
  auto deadline = std::chrono::steady_clock::now() + limit;
  wait::until([&] { return queues().gave_up || busy().empty() || std::chrono::steady_clock::now() >= deadline; });
  wait::cancel_runs();
  std::unique_lock<std::mutex> lock(wait::mutex());
  settle_devices(busy(), lock);
  queues().gave_up = !busy().empty();
  return !queues().gave_up;
}

} // namespace torch_xla
