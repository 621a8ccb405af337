// Handlers of fork.
#include "core/process.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "core/errors.h"

namespace torch_xla::process {
namespace {

std::atomic<bool> used{false};
std::atomic<bool> forked{false};

struct Kept {
  std::mutex mutex; // guards the list; taken before all in it
  std::vector<std::mutex*> mutexes;
};

Kept& kept();

void before_fork() {
  kept().mutex.lock();
  for (std::mutex* mutex : kept().mutexes) {
    mutex->lock();
  }
}

void after_fork() {
  std::for_each(kept().mutexes.rbegin(), kept().mutexes.rend(), [](std::mutex* mutex) { mutex->unlock(); });
  kept().mutex.unlock();
}

void after_fork_in_child() {
  forked = used.load();
  after_fork();
}

Kept& kept() {
  static auto* all = [] {
    pthread_atfork(&before_fork, &after_fork, &after_fork_in_child);
    return new Kept;
  }();
  return *all;
}

} // namespace

void note_use() {
  kept();
  used = true;
}

bool is_used() {
  return used;
}

bool in_forked_child() {
  return forked.load(std::memory_order_relaxed);
}

void check() {
  XLA_CHECK(
      !in_forked_child(),
      "Cannot re-initialize XLA in forked subprocess. To use XLA with multiprocessing, you must use the 'spawn' start method");
}

void keep_sound(std::mutex& mutex) {
  std::lock_guard<std::mutex> lock(kept().mutex);
  kept().mutexes.push_back(&mutex);
}

} // namespace torch_xla::process
