// An event: a mark in a device's queue that carries the time at which the device reached it.
#include "device/event.h"

#include "core/errors.h"
#include "core/metrics.h"
#include "program/sync.h"
#include "runtime/executor.h"
#include "runtime/interrupt.h"

namespace torch_xla {
namespace {

// A program without inputs and outputs that notes when it runs.
class MarkProgram final : public Executable {
 public:
  explicit MarkProgram(std::shared_ptr<EventMark> mark) : mark_(std::move(mark)) {}
  void run(RunArgs& /*args*/) override {
    mark_->reached_ns = metrics::now_ns();
  }

 private:
  std::shared_ptr<EventMark> mark_;
};

// Queues the pending operations and then the mark, once.
void queue_mark(const std::shared_ptr<EventMark>& mark) {
  if (mark->queued.exchange(true)) {
    return;
  }
  const interrupt::NoGil no_gil;
  sync(mark->device, false);
  Executor& executor = Executor::get(mark->device);
  if (executor.idle()) {
    mark->reached_ns = metrics::now_ns();
    return;
  }
  std::unique_ptr<Run> run = executor.new_run();
  run->executable = std::make_shared<MarkProgram>(mark);
  executor.enqueue(std::move(run));
  executor.wait_for_room();
}

} // namespace

std::shared_ptr<EventMark> Event::mark() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return mark_;
}

void Event::record(int device, bool timed) {
  auto mark = std::make_shared<EventMark>(device);
  if (timed) {
    queue_mark(mark);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  mark_ = std::move(mark);
}

bool Event::query() const {
  std::shared_ptr<EventMark> mark = this->mark();
  if (mark == nullptr) {
    return true;
  }
  queue_mark(mark);
  return mark->reached_ns != 0;
}

void Event::wait() const {
  if (!query()) {
    const interrupt::NoGil no_gil;
    sync(mark()->device, true);
  }
}

double Event::elapsed_ms(const Event& end) const {
  std::shared_ptr<EventMark> from = mark(), to = end.mark();
  XLA_CHECK(from != nullptr && to != nullptr, "elapsed_time needs two events that were recorded");
  XLA_CHECK(query() && end.query(), "elapsed_time needs two events that the device has reached; call synchronize() first");
  return static_cast<double>(to->reached_ns - from->reached_ns) / 1e6;
}

} // namespace torch_xla
