// c10's error classes, each with its class in Python.
#include "engine/cpu/library/step_error.h"

#include <c10/util/Exception.h>

#include <new>

#include "core/errors.h"
#include "engine/engine.h"

namespace torch_xla::cpu {

static std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

void rethrow_as_step_error(const std::string& name, int32_t location) {
  auto fail = [&](ErrorKind kind, const std::string& what) { throw StepError(kind, str(name, ": ", first_line(what)), location); };
  try {
    throw;
  } catch (const InternalError&) {
    throw;
  } catch (const StepError& e) { // of a program of the node's own, which names the row
    throw StepError(e.kind(), e.what(), location);
  } catch (const UserError& e) { // of the pool
    fail(e.kind(), e.what());
  } catch (const c10::OutOfMemoryError& e) {
    fail(ErrorKind::OutOfMemory, e.what_without_backtrace());
  } catch (const std::bad_alloc& e) {
    fail(ErrorKind::OutOfMemory, e.what());
  } catch (const c10::IndexError& e) {
    fail(ErrorKind::Index, e.what_without_backtrace());
  } catch (const c10::ValueError& e) {
    fail(ErrorKind::Value, e.what_without_backtrace());
  } catch (const c10::TypeError& e) {
    fail(ErrorKind::Type, e.what_without_backtrace());
  } catch (const c10::NotImplementedError& e) {
    fail(ErrorKind::NotImplemented, e.what_without_backtrace());
  } catch (const c10::LinAlgError& e) {
    fail(ErrorKind::LinAlg, e.what_without_backtrace());
  } catch (const c10::Error& e) {
    fail(ErrorKind::Runtime, e.what_without_backtrace());
  } catch (const std::exception& e) {
    fail(ErrorKind::Runtime, e.what());
  }
  throw InternalError("unknown exception in " + name);
}

} // namespace torch_xla::cpu
