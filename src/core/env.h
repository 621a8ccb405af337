// The one reader of environment variables, and the debug ladder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/dtype.h"
#include "core/env_table.h"

namespace torch_xla::env {

// ---- Reading, by the row that variable() finds. A text that is not understood throws UserError (Value) ----
std::optional<std::string> find(const Variable& variable); // the text as it is, also an empty one
bool is_set(const Variable& variable); // to more than nothing
std::string text(const Variable& variable); // a path through full_path() of core/paths.h
bool flag(const Variable& variable); // 1, true, yes, on; 0, false, no, off; in any case
int64_t integer(const Variable& variable);
int64_t integer_or(const Variable& variable, int64_t otherwise); // for one without a default
double share(const Variable& variable); // over 0, at most 1
// As flag(), for a text that the caller has read.
bool parse_flag(const std::string& name, const std::string& text);
// Throws where the text is not understood.
void check(const Variable& variable);
// The accepted texts, as users read them.
std::string accepted(const Variable& variable);

// ---- The variables of C++, each read once, except those of the directory of compiled code ---- Reads them all: throws for the first that
// is not understood, at each call. Called at the first use of the device.
void check();
// XLA_DEBUG=N prints to stderr (or XLA_DEBUG_FILE): 1 why it compiled and fell back, 2 the trace, 3 the graph after each pass, 4 kernels'
// LLVM IR, 5 their assembly.
int debug_level();
void debug_print(const std::string& title, const std::string& text);
bool verify(); // XLA_VERIFY: rules are checked after each pass and each stage of scheduling. On in debug builds and from XLA_DEBUG=3
bool fusion(); // XLA_FUSION=0: every node by ATen's kernel or a kernel of its own, to find faults
bool lazy(); // XLA_LAZY=0 or eager mode: sync after each op
FloatStorage float_storage(); // XLA_USE_BF16, else XLA_DOWNCAST_BF16
std::string cache_dir(); // XLA_PERSISTENT_CACHE_PATH as it is now, else ~/.cache/torch_xla; empty value switches off
bool cache_is_read_only(); // XLA_PERSISTENT_CACHE_READ_ONLY as it is now
bool has_plain_executables(); // XLA_PLAIN_EXECUTABLES as it is now
size_t program_cache_size(); // XLA_COMPILATION_CACHE_SIZE: programs kept in memory
int64_t interpreted_operations(); // XLA_INTERPRETED_OPERATIONS: of a small program, before it is compiled
int cpu_num_devices(); // CPU_NUM_DEVICES: of the embedded engine
// For tests: overrides the variable.
void set_fusion(bool on);
void set_lazy(bool on); // of future traces; set_lazy_mode() of trace/recorder.h also changes pending ones

} // namespace torch_xla::env
