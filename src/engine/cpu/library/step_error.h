// Errors of ATen as errors of a step.
#pragma once

#include <cstdint>
#include <string>

namespace torch_xla::cpu {

// Throws the error in flight, which ATen raised in a kernel of the row, as StepError of the class that it has in Python; InternalError as
// it is.
[[noreturn]] void rethrow_as_step_error(const std::string& row, int32_t location);

} // namespace torch_xla::cpu
