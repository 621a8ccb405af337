// The three kinds of error: the user's call, our own bug, a failure of a library we call.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace torch_xla {

// The exception class of PyTorch that Python raises for the user's mistake.
enum class ErrorKind { Runtime, Value, Type, Index, NotImplemented, OutOfMemory, LinAlg };

// The user's call was wrong, or the run failed for a reason that the user can act on.
class UserError : public std::runtime_error {
 public:
  UserError(ErrorKind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  ErrorKind kind() const {
    return kind_;
  }

 private:
  ErrorKind kind_;
};

// A broken invariant of this project.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

template <typename... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

// The text of an ErrorKind::OutOfMemory: PyTorch's allocator's words, by which programs recognize the error.
inline std::string out_of_memory_text(size_t bytes) {
  return str("DefaultCPUAllocator: can't allocate memory: you tried to allocate ", bytes, " bytes. Error code 12 (Cannot allocate memory)");
}

} // namespace torch_xla

// The user's call: XLA_CHECK(ok, "message ", value); a RuntimeError in Python.
#define XLA_CHECK(ok, ...)                                                                          \
  do {                                                                                              \
    if (__builtin_expect(!(ok), 0)) {                                                               \
      throw ::torch_xla::UserError(::torch_xla::ErrorKind::Runtime, ::torch_xla::str(__VA_ARGS__)); \
    }                                                                                               \
  } while (0)
// As XLA_CHECK with the class of the Python exception: XLA_CHECK_KIND(Index, ok, ...).
#define XLA_CHECK_KIND(kind, ok, ...)                                                            \
  do {                                                                                           \
    if (__builtin_expect(!(ok), 0)) {                                                            \
      throw ::torch_xla::UserError(::torch_xla::ErrorKind::kind, ::torch_xla::str(__VA_ARGS__)); \
    }                                                                                            \
  } while (0)
// Our own invariant.
#define XLA_ASSERT(ok, ...)                                                                                       \
  do {                                                                                                            \
    if (__builtin_expect(!(ok), 0)) {                                                                             \
      throw ::torch_xla::InternalError(                                                                           \
          ::torch_xla::str(__FILE__, ":", __LINE__, ": internal error: ", #ok, ". " __VA_OPT__(, ) __VA_ARGS__)); \
    }                                                                                                             \
  } while (0)
