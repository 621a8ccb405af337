// Reads the files of Linux that tell of processors and control groups, and compares two readings.
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

// "max 100000" or "50000 100000": microseconds of each period.
std::optional<double> quota_of_v2(const std::string& folder) {
  std::istringstream in(read_file(folder + "/cpu.max"));
  double quota = 0;
  double period = 0;
  return in >> quota >> period && quota > 0 && period > 0 ? std::make_optional(quota / period) : std::nullopt;
}

std::optional<double> quota_of_v1(const std::string& folder) {
  std::istringstream quota_in(read_file(folder + "/cpu.cfs_quota_us")); // -1: no limit
  std::istringstream period_in(read_file(folder + "/cpu.cfs_period_us"));
  double quota = 0;
  double period = 0;
  return quota_in >> quota && period_in >> period && quota > 0 && period > 0 ? std::make_optional(quota / period) : std::nullopt;
}

// The least quota of a group and those around it. A container may show its own group as the root, whatever path it is said to have.
template <typename Read>
std::optional<double> least_quota(const std::string& root, std::string path, const Read& read) {
  std::optional<double> least = read(root);
  for (; path.size() > 1; path.resize(path.rfind('/'))) {
    if (std::optional<double> quota = read(root + path)) {
      least = std::min(least.value_or(*quota), *quota);
    }
  }
  return least;
}

bool has_cpu_controller(const std::string& controllers) {
  std::istringstream in(controllers);
  for (std::string name; std::getline(in, name, ',');) {
    if (name == "cpu") {
      return true;
    }
  }
  return false;
}

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

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

} // namespace

std::optional<double> read_quota(const std::string& root, const std::string& membership) {
  std::istringstream lines(read_file(membership));
  std::optional<double> least;
  for (std::string line; std::getline(lines, line);) { // "0::/path" of v2, "4:cpu,cpuacct:/path" of v1
    size_t first = line.find(':');
    size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    std::optional<double> quota;
    if (controllers.empty()) {
      quota = least_quota(root, path, quota_of_v2);
    } else if (has_cpu_controller(controllers)) {
      quota = least_quota(root + "/" + controllers, path, quota_of_v1);
    }
    if (quota) {
      least = std::min(least.value_or(*quota), *quota);
    }
  }
  return least;
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
  // Not out of the busy times: the kernel takes samples of those, while idle ones are exact.
  double busy = all - (now.times.idle - before->times.idle);
  return std::max(0.0, busy - (now.own - before->own)) / elapsed;
}

} // namespace torch_xla::cpu
