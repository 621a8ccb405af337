// How the report writes values, and which of its two parts has a name.
#pragma once

#include <string>

#include "core/metrics.h"

namespace torch_xla::metrics {

// Times as 01s148ms534.011us, bytes as 70.68KB, numbers as 4.00.
std::string value_text(Unit unit, double value);
// aten::*, or the name of an operation of another library: a call that went to the CPU.
bool is_fallback(const std::string& name);
// Whether the original counts the name in its runtime library; the report prints the other names first, those of the lazy tensor core.
bool is_runtime_name(const std::string& name);

} // namespace torch_xla::metrics
