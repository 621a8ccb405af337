// The counting thread, and the reading of the others' counts.
#include "distributed/heartbeats.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/threads.h"

namespace torch_xla {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPeriod(1);

// Never destroyed: the thread may be in a call of the store when the process ends.
struct Heart {
  std::mutex mutex; // guards all below; not held while the store is called
  std::condition_variable changed;
  bool is_beating = false;
  bool is_ending = false;
};
Heart& heart() {
  static auto* only = new Heart;
  return *only;
}

std::string key_of(int64_t replica) {
  return "heartbeat/" + std::to_string(replica);
}

void beat(const StoreRef& store, const std::string& key) {
  std::unique_lock<std::mutex> lock(heart().mutex);
  while (!heart().changed.wait_for(lock, kPeriod, [] { return heart().is_ending; })) {
    lock.unlock();
    try {
      store->add(key, 1);
    } catch (const std::exception&) { // the store ends with the process that keeps it
      lock.lock();
      break;
    }
    lock.lock();
  }
  heart().is_beating = false;
  heart().changed.notify_all();
}

std::string join(const std::vector<int64_t>& numbers) {
  std::string text;
  for (int64_t number : numbers) {
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  }
  return text;
}

bool counted_on(const std::vector<int64_t>& before, const std::vector<int64_t>& after, int64_t beats) {
  return !std::equal(before.begin(), before.end(), after.begin(), [&](int64_t b, int64_t a) { return a - b < beats; });
}

// The replicas that are silent from now on while another one counts.
std::vector<int64_t> listen(c10d::Store& store) {
  constexpr int64_t kBeats = 3;
  constexpr milliseconds kPause(200);
  constexpr int kMaxPauses = 75;
  const std::vector<int64_t> before = read_heartbeats(store);
  std::vector<int64_t> after = before;
  for (int i = 0; i < kMaxPauses && !before.empty() && !counted_on(before, after, kBeats); ++i) {
    std::this_thread::sleep_for(kPause);
    after = read_heartbeats(store);
  }
  return find_silent(before, after, kBeats);
}

// The first replica that finds them publishes them, as it fails next and the others would report it instead.
std::string find_lost(c10d::Store& store) {
  const std::string key = "lost";
  if (!store.check({key})) {
    const std::string lost = join(listen(store));
    if (lost.empty()) {
      return lost;
    }
    if (!store.check({key})) {
      store.set(key, std::vector<uint8_t>(lost.begin(), lost.end()));
    }
  }
  const std::vector<uint8_t> lost = store.get(key);
  return {lost.begin(), lost.end()};
}

} // namespace

void start_heartbeat(const StoreRef& store, int64_t replica) {
  std::lock_guard<std::mutex> lock(heart().mutex);
  store->add(key_of(replica), 1);
  start_thread("xla_heartbeat", [store, replica] { beat(store, key_of(replica)); }).detach();
  heart().is_beating = true;
}

void stop_heartbeat() {
  std::unique_lock<std::mutex> lock(heart().mutex);
  heart().is_ending = true;
  heart().changed.notify_all();
  heart().changed.wait_for(lock, 2 * kPeriod, [] { return !heart().is_beating; });
}

std::vector<int64_t> read_heartbeats(c10d::Store& store) {
  std::vector<int64_t> beats(static_cast<size_t>(store.add("replicas", 0)));
  for (size_t replica = 0; replica < beats.size(); ++replica) {
    beats[replica] = store.add(key_of(static_cast<int64_t>(replica)), 0);
  }
  return beats;
}

std::vector<int64_t> find_silent(const std::vector<int64_t>& before, const std::vector<int64_t>& after, int64_t beats) {
  std::vector<int64_t> silent;
  for (size_t replica = 0; replica < after.size() && counted_on(before, after, beats); ++replica) {
    if (before[replica] == after[replica]) {
      silent.push_back(static_cast<int64_t>(replica));
    }
  }
  return silent;
}

std::string describe_lost(c10d::Store& store) {
  try {
    const std::string lost = find_lost(store);
    return lost.empty() ? lost : "replica " + lost + " has ended or does not answer; ";
  } catch (const std::exception&) {
    return "the process that keeps the run's store has ended; ";
  }
}

} // namespace torch_xla
