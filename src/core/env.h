// The one reader of environment variables, and the debug ladder. docs/environment.md lists the variables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace torch_xla::env {

// ---- Reading: a variable that is not set, or empty, is `otherwise`; a text that is not understood throws UserError (Value) ----
std::optional<std::string> find(const char* name); // as it is, empty ones too
std::string text(const char* name, const char* otherwise = "");
bool flag(const char* name, bool otherwise); // 1, true, yes, on; 0, false, no, off; upper and lower case are one
int64_t integer(const char* name, int64_t otherwise, int64_t low, int64_t high);
double share(const char* name, double otherwise); // over 0, at most 1

// ---- The variables of C++, each read once ----
// Reads them all: throws for the first that is not understood, at each call. Called at the first use of the device.
void check();
// XLA_DEBUG=N prints to stderr (or XLA_DEBUG_FILE): 1 why it compiled and fell back, 2 the trace, 3 the graph after each pass, 4 kernels'
// LLVM IR, 5 their assembly.
int debug_level();
void debug_print(const std::string& title, const std::string& text);
bool fusion(); // XLA_FUSION=0: every node by ATen's kernel or a kernel of its own, to find faults
bool lazy(); // XLA_LAZY=0: sync after each op
std::string cache_dir(); // XLA_PERSISTENT_CACHE_PATH, else ~/.cache/torch_xla; empty value switches off
size_t program_cache_size(); // XLA_COMPILATION_CACHE_SIZE: programs kept in memory
// Overrides for tests, from Python.
void set_fusion(bool on);
void set_lazy(bool on);

} // namespace torch_xla::env
