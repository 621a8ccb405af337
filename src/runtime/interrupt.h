// Ctrl-C during work under the recording lock: Python code must not run there, so poll() ends the work and the handlers run after the lock
// is released.
#pragma once

#include <exception>

namespace torch_xla::interrupt {

// Python's part.
struct Hooks {
  // Runs Python's signal handlers and throws what they throw (KeyboardInterrupt). Takes the GIL.
  void (*hear)();
  // True on the thread that handles signals while Ctrl-C waits to be handled. Takes the GIL, and runs no Python code.
  bool (*is_pending)();
  // Throws KeyboardInterrupt if Ctrl-C is pending and has Python's own handler. Takes the GIL, and runs no Python code.
  void (*raise_default)();
  // The calling thread is about to take a recording lock for the first time. Takes the GIL.
  void (*begin_thread)();
  // Releases the GIL if this thread holds it; its result is the argument of take_gil().
  void* (*release_gil)();
  void (*take_gil)(void* released);
};
// Never destroyed; null: none. Set once by the Python layer.
void set_hooks(const Hooks* hooks);

// Ends work under the recording lock; retry() does it again.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override {
    return "interrupted";
  }
};

// Throws Interrupted within retry() when Ctrl-C is pending; looks every 50 ms at most.
void poll();

// While one lives this thread does not hold the GIL: to wait for a lock whose owner may need the GIL.
class NoGil {
 public:
  NoGil();
  ~NoGil();
  NoGil(const NoGil&) = delete;
  NoGil& operator=(const NoGil&) = delete;

 private:
  void* released_;
};

// While one lives poll() may throw on this thread.
class Scope {
 public:
  Scope();
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  bool outer_;
};

// Runs Python's signal handlers; throws what they throw, and then cancels the runs that are queued. Called about every 50 ms by threads
// that wait.
void hear();
// As hear(), but runs go on.
void hear_signals();
// The hooks of these names.
void raise_default();
void begin_thread();

// Runs the body, which takes the recording lock, until it is not interrupted. The caller holds no lock.
template <typename Body>
auto retry(Body body) {
  for (;;) {
    try {
      Scope scope;
      return body();
    } catch (const Interrupted&) {
      hear();
    }
  }
}

} // namespace torch_xla::interrupt
