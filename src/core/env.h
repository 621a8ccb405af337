// Environment variables, read once, and the debug ladder.
#pragma once

#include <string>

namespace torch_xla::env {

// XLA_DEBUG=N prints to stderr (or XLA_DEBUG_FILE): 1 why it compiled and fell back, 2 the trace, 3 the graph after each pass, 4 kernels'
// LLVM IR, 5 their assembly.
int debug_level();
void debug_print(const std::string& title, const std::string& text);
bool fusion(); // XLA_FUSION=0: every node by ATen's kernel or a kernel of its own, to find faults
bool lazy(); // XLA_LAZY=0: sync after each op
std::string cache_dir(); // XLA_PERSISTENT_CACHE_PATH, else ~/.cache/torch_xla; empty value switches off
// Overrides for tests, from Python.
void set_fusion(bool on);
void set_lazy(bool on);

} // namespace torch_xla::env
