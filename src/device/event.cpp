// An event: a mark in a device's queue that carries the time at which the device reached it.
#include "device/event.h"

#include "core/errors.h"
#include "core/metrics.h"
#include "runtime/executor.h"
#include "tensor/api.h"

namespace torch_xla {
namespace {

// A program without inputs and outputs that notes when it runs.
class MarkProgram final : public Executable {
 public:
  explicit MarkProgram(std::shared_ptr<EventMark> mark) : mark_(std::move(mark)) {}
  void run(RunArgs& /*args*/) override {
    mark_->reached_ns = metrics::now_ns();
  }
  int64_t scratch_bytes() const override {
    return 0;
  }
  std::string text() const override {
    return "event";
  }

 private:
  std::shared_ptr<EventMark> mark_;
};

void queue_mark(Executor& executor, std::shared_ptr<EventMark> mark) {
  Run run;
  run.executable = std::make_shared<MarkProgram>(std::move(mark));
  executor.enqueue(std::move(run));
  executor.wait_for_room();
}

} // namespace

void Event::record(int device) {
  sync(device, false);
  mark_ = std::make_shared<EventMark>(device);
  Executor& executor = Executor::get(device);
  if (executor.idle()) {
    mark_->reached_ns = metrics::now_ns();
  } else {
    queue_mark(executor, mark_);
  }
}

bool Event::query() const {
  return mark_ == nullptr || mark_->reached_ns != 0;
}

void Event::wait() const {
  if (!query()) {
    wait_device_ops(mark_->device);
  }
}

double Event::elapsed_ms(const Event& end) const {
  XLA_CHECK(mark_ != nullptr && end.mark_ != nullptr, "elapsed_time needs two events that were recorded");
  XLA_CHECK(query() && end.query(), "elapsed_time needs two events that the device has reached; call synchronize() first");
  return static_cast<double>(end.mark_->reached_ns - mark_->reached_ns) / 1e6;
}

} // namespace torch_xla
