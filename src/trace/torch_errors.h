// Turns this package's errors into PyTorch's exception classes.
#pragma once

#include <c10/util/Exception.h>

#include "core/errors.h"

namespace torch_xla {

[[noreturn]] inline void throw_as_torch_error(const UserError& error) {
  switch (error.kind()) {
    case ErrorKind::Index:
      TORCH_CHECK_INDEX(false, error.what());
    case ErrorKind::Value:
      TORCH_CHECK_VALUE(false, error.what());
    case ErrorKind::Type:
      TORCH_CHECK_TYPE(false, error.what());
    case ErrorKind::NotImplemented:
      TORCH_CHECK_NOT_IMPLEMENTED(false, error.what());
    case ErrorKind::OutOfMemory:
      TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
    case ErrorKind::LinAlg:
      TORCH_CHECK_LINALG(false, error.what());
    case ErrorKind::Runtime:
      break;
  }
  TORCH_CHECK(false, error.what());
}

// The result of `function`; its UserErrors become PyTorch's classes. For functions that PyTorch's own code calls.
template <typename F>
auto with_torch_errors(const F& function) {
  try {
    return function();
  } catch (const UserError& error) {
    throw_as_torch_error(error);
  }
}

} // namespace torch_xla
