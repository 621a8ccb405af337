// The machine as the embedded engine sees it: the system's figures, and speeds measured once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace torch_xla::cpu {

// Work of one thread in a nanosecond, measured in a few milliseconds and kept on disk. It gives the expected time of a step, so it decides
// how threads wait, never a program or a value.
struct Speeds {
  double products = 58; // multiplications of a float32 product that stays in the cache
  double numbers = 12; // float32 numbers copied within the last cache or memory
};

struct Host {
  int processors = 1; // processors that this process may keep busy, by its affinity and control groups
  int64_t second_cache_bytes = int64_t{1} << 20; // of a processor
};

// Read at the first call. Any thread.
const Host& host();
// Measured by the first caller, or read from the file of an earlier process. Any thread.
const Speeds& speeds();
// Sets the directory for the file of speeds(), in a folder of its own; empty: no file. Call it before speeds().
void set_host_cache_dir(const std::string& path, bool read_only);

// Nanoseconds that one thread takes for one unit of Work: the work worth a thread.
double unit_ns();

// ---- For tests ----

// The number of the allowed processors that a quota lets a process keep busy.
int usable_processors(int allowed, std::optional<double> quota);
std::string text_of(const Speeds& speeds);
// Inverse of text_of(). Nothing for another text, or for impossible speeds.
std::optional<Speeds> read_speeds(const std::string& text);
// As speeds(), with this measurement and this folder.
Speeds find_or_measure(const std::string& path, bool read_only, Speeds (*measure)());

} // namespace torch_xla::cpu
