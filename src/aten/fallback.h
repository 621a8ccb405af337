// Calls without a row: they run on the CPU.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace torch_xla {

// Runs the call on the CPU, by the kernel at `key`. Counts and prints the reason.
void run_fallback(
    const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& reason, c10::DispatchKey key = c10::DispatchKey::CPU);

// Registers the fallback for all operations without a kernel of the device.
void register_fallback();

} // namespace torch_xla
