// The machine as the embedded engine sees it: what the system tells of it, and what was measured once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace torch_xla::cpu {

// What one thread does in a nanosecond. Measured in a few milliseconds, and kept on disk: it decides how long a step may take, so on
// waiting, never on a program or a value.
struct Speeds {
  double products = 58; // multiplications of a float32 product that stays in the cache
  double numbers = 12; // float32 numbers that are copied from the last cache, or memory, to it
};

struct Host {
  int processors = 1; // that this process may keep busy: by its affinity and its control groups
  int64_t second_cache_bytes = int64_t{1} << 20; // of a processor
};

// Read when it is first asked for. Any thread.
const Host& host();
// Measured by the first thread that asks, or read where an earlier process has kept them. Any thread.
const Speeds& speeds();
// Where speeds() are kept, in a folder of their own; empty for nowhere. Before speeds() is first asked for.
void set_host_cache_dir(const std::string& path, bool read_only);

// Nanoseconds that one thread takes for what is worth a thread (Work).
double unit_ns();

// ---- For tests ----

// How many of these processors a quota lets a process keep busy.
int usable_processors(int allowed, std::optional<double> quota);
std::string text_of(const Speeds& speeds);
// Nothing for a text that is not text_of() any that a machine may have.
std::optional<Speeds> read_speeds(const std::string& text);
// As speeds(), by this measurement, kept in this folder.
Speeds find_or_measure(const std::string& path, bool read_only, Speeds (*measure)());

} // namespace torch_xla::cpu
