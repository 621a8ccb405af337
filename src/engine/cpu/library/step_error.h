// Errors of ATen as errors of a step.
#pragma once

#include <cstdint>
#include <string>

namespace torch_xla::cpu {

// Rethrows the current exception, raised by ATen in a kernel of the row, as StepError with its class in Python; InternalError as it is.
[[noreturn]] void rethrow_as_step_error(const std::string& row, int32_t location);

} // namespace torch_xla::cpu
