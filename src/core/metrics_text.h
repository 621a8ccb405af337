// How the report writes values, and in which of its two parts a name stands.
#pragma once

#include <string>

#include "core/metrics.h"

namespace torch_xla::metrics {

// Times as 01s148ms534.011us, bytes as 70.68KB, numbers as 4.00.
std::string value_text(Unit unit, double value);
// aten::*, or the name of an operation of another library: a call that went to the CPU.
bool is_fallback(const std::string& name);
// Names that the original counts in its runtime library; the others belong to the lazy tensor core and are printed first.
bool is_runtime_name(const std::string& name);

} // namespace torch_xla::metrics
