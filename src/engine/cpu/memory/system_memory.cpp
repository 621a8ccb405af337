// Reads /proc/meminfo and the files of control groups.
#include "engine/cpu/memory/system_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace torch_xla::cpu {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// The number in a file with one number; kUnknown for other texts ("max").
int64_t read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : kUnknown;
}

// The number after a word at the start of a line; 0 where there is none.
int64_t read_entry(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(name + " ")) {
      return std::stoll(line.substr(name.size()));
    }
  }
  return 0;
}

int64_t available_in_machine() {
  constexpr const char* kFile = "/proc/meminfo";
  int64_t kilobytes = read_entry(kFile, "MemAvailable:");
  return kilobytes ? (kilobytes + read_entry(kFile, "SwapFree:")) * 1024 : kUnknown;
}

// The files that the group has cached can be dropped.
int64_t available_in_group(const std::string& folder, const char* limit_file, const char* usage_file, const char* cached) {
  int64_t limit = read_number(folder + limit_file);
  int64_t usage = read_number(folder + usage_file);
  if (limit == kUnknown || usage == kUnknown) {
    return kUnknown;
  }
  return std::max<int64_t>(0, limit - usage + read_entry(folder + "/memory.stat", cached));
}

// The process's group of version 2 below the mount: "" for the root.
std::string own_group() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("0::/")) {
      return line.size() == 4 ? "" : line.substr(3);
    }
  }
  return "";
}

int64_t available_in_groups() {
  const std::string mount = "/sys/fs/cgroup";
  int64_t available = available_in_group(mount + "/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file");
  for (std::string group = own_group();; group.resize(group.rfind('/'))) {
    available = std::min(available, available_in_group(mount + group, "/memory.max", "/memory.current", "inactive_file"));
    if (group.empty()) {
      return available;
    }
  }
}

} // namespace

int64_t available_memory() {
  return std::min(available_in_machine(), available_in_groups());
}

} // namespace torch_xla::cpu
