// Asks the Python layer's hooks for Ctrl-C, at most every 50 ms, on threads whose work may be interrupted.
#include "runtime/interrupt.h"

#include <atomic>
#include <chrono>

#include "runtime/wait.h"

namespace torch_xla::interrupt {
namespace {

std::atomic<const Hooks*> hooks{nullptr};
thread_local bool can_be_interrupted = false;

bool is_due() {
  using Clock = std::chrono::steady_clock;
  thread_local Clock::time_point next;
  Clock::time_point now = Clock::now();
  if (now < next) {
    return false;
  }
  next = now + std::chrono::milliseconds(50);
  return true;
}

} // namespace

void set_hooks(const Hooks* given) {
  hooks = given;
}

void poll() {
  const Hooks* h = hooks;
  if (h && can_be_interrupted && is_due() && h->is_pending()) {
    throw Interrupted();
  }
}

NoGil::NoGil() : released_(hooks ? hooks.load()->release_gil() : nullptr) {}

NoGil::~NoGil() {
  if (released_) {
    hooks.load()->take_gil(released_);
  }
}

Scope::Scope() : outer_(can_be_interrupted) {
  can_be_interrupted = true;
}

Scope::~Scope() {
  can_be_interrupted = outer_;
}

void hear() {
  try {
    hear_signals();
  } catch (...) {
    wait::cancel_runs();
    throw;
  }
}

void hear_signals() {
  if (const Hooks* h = hooks) {
    h->hear();
  }
}

void raise_default() {
  if (const Hooks* h = hooks) {
    h->raise_default();
  }
}

void begin_thread() {
  if (const Hooks* h = hooks) {
    h->begin_thread();
  }
}

} // namespace torch_xla::interrupt
