// The thread that waits beside the caller.
#include "engine/pjrt/slow_answer.h"

#include <cstdio>

#include "core/errors.h"
#include "core/threads.h"

namespace torch_xla::pjrt {

SlowAnswer::SlowAnswer(std::string what) : what_(std::move(what)) {
  try {
    thread_ = start_thread("xla_slow_answer", [this] { watch(); });
  } catch (const UserError&) { // no thread can be started: no message then
  }
}

SlowAnswer::~SlowAnswer() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    answered_ = true;
  }
  changed_.notify_all();
}

void SlowAnswer::watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!changed_.wait_for(lock, kPatience, [this] { return answered_; })) {
    std::fprintf(stderr, "torch_xla: still waiting for %s\n", what_.c_str());
  }
}

} // namespace torch_xla::pjrt
