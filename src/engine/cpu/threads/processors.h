// How busy other processes keep the processors that this process may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace torch_xla::cpu {

// The numbers of the processors that this process may run on, by its affinity; none where the system does not say. Any thread.
std::vector<int> allowed_processors();

// The time that processors have been idle and that the system has told in all since it started, in seconds.
struct ProcessorTimes {
  double idle = 0;
  double told = 0;
};

// Of these processors, out of a text like /proc/stat's. See proc(5).
ProcessorTimes read_times(const std::string& text, const std::vector<int>& processors, double ticks_per_second);

// How many processors others keep busy out of those that this process may run on. Not thread-safe.
class ForeignLoad {
 public:
  // The mean since the last look. Nothing at the first look, or where the system does not tell its times.
  std::optional<double> look();

 private:
  struct Look {
    int64_t at_ns = 0;
    double own = 0; // seconds that this process has computed
    ProcessorTimes times;
  };
  std::optional<Look> last_;
};

} // namespace torch_xla::cpu
