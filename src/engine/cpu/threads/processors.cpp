// Reads /proc/stat and compares two readings.
#include "engine/cpu/threads/processors.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <sstream>
#include <utility>

namespace torch_xla::cpu {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

} // namespace

std::vector<int> allowed_processors() {
  cpu_set_t set;
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
      if (CPU_ISSET(processor, &set)) {
        processors.push_back(processor);
      }
    }
  }
  return processors;
}

ProcessorTimes read_times(const std::string& text, const std::vector<int>& processors, double ticks_per_second) {
  ProcessorTimes times;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::string name;
    in >> name;
    bool is_one = name.size() > 3 && name.starts_with("cpu");
    if (!is_one || std::find(processors.begin(), processors.end(), std::stoi(name.substr(3))) == processors.end()) {
      continue;
    }
    std::array<double, 8> ticks{}; // user, nice, system, idle, iowait, irq, softirq, steal
    for (double& value : ticks) {
      in >> value;
    }
    times.idle += (ticks[3] + ticks[4]) / ticks_per_second;
    for (double value : ticks) {
      times.told += value / ticks_per_second;
    }
  }
  return times;
}

std::optional<double> ForeignLoad::look() {
  std::vector<int> processors = allowed_processors();
  Look now;
  now.at_ns = static_cast<int64_t>(seconds_of(CLOCK_MONOTONIC) * 1e9);
  now.own = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  now.times = read_times(read_file("/proc/stat"), processors, static_cast<double>(sysconf(_SC_CLK_TCK)));
  std::optional<Look> before = std::exchange(last_, now);
  if (!before || now.at_ns <= before->at_ns) {
    return std::nullopt;
  }
  double elapsed = static_cast<double>(now.at_ns - before->at_ns) / 1e9;
  double all = elapsed * static_cast<double>(processors.size());
  if (now.times.told - before->times.told < all / 2) {
    return std::nullopt; // a sandbox that shows zeros
  }
  // Not from the busy times: the kernel samples those, while idle times are exact.
  double busy = all - (now.times.idle - before->times.idle);
  return std::max(0.0, busy - (now.own - before->own)) / elapsed;
}

} // namespace torch_xla::cpu
