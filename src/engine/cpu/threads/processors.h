// Measures how busy other processes keep the processors of this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace torch_xla::cpu {

// The numbers of the processors that this process may run on, by its affinity; empty if the system does not say. Any thread.
std::vector<int> allowed_processors();

// Idle and total time of processors since the system started, in seconds.
struct ProcessorTimes {
  double idle = 0;
  double told = 0;
};

// Times of these processors, from a text like /proc/stat's. See proc(5).
ProcessorTimes read_times(const std::string& text, const std::vector<int>& processors, double ticks_per_second);

// The number of this process's processors that other processes keep busy. Not thread-safe.
class ForeignLoad {
 public:
  // The mean since the last call. Nothing at the first call, or if the system gives no times.
  std::optional<double> look();

 private:
  struct Look {
    int64_t at_ns = 0;
    double own = 0; // processor time of this process in seconds
    ProcessorTimes times;
  };
  std::optional<Look> last_;
};

} // namespace torch_xla::cpu
