// Goes through the groups that the process is in, of both versions.
#include "core/control_group.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace torch_xla::control_group {
namespace {

// The number in a group's file; nothing for "max" and for a missing file.
std::optional<double> read_number(const std::string& path) {
  std::ifstream in(path);
  double number = 0;
  return in >> number && number > 0 ? std::make_optional(number) : std::nullopt;
}

// Reads a limit of one version's controller from a group's folder.
struct Limit {
  const char* controller; // v1's
  std::optional<double> (*of_v2)(const std::string& folder);
  std::optional<double> (*of_v1)(const std::string& folder);
};

// "max 100000" or "50000 100000": microseconds of each period.
std::optional<double> quota_of_v2(const std::string& folder) {
  std::ifstream in(folder + "/cpu.max");
  double quota = 0;
  double period = 0;
  return in >> quota >> period && quota > 0 && period > 0 ? std::make_optional(quota / period) : std::nullopt;
}

std::optional<double> quota_of_v1(const std::string& folder) {
  std::optional<double> quota = read_number(folder + "/cpu.cfs_quota_us"); // -1: no limit
  std::optional<double> period = read_number(folder + "/cpu.cfs_period_us");
  return quota && period ? std::make_optional(*quota / *period) : std::nullopt;
}

constexpr Limit kQuota{"cpu", quota_of_v2, quota_of_v1};

constexpr Limit kMemory{
    "memory",
    [](const std::string& folder) { return read_number(folder + "/memory.max"); },
    [](const std::string& folder) { return read_number(folder + "/memory.limit_in_bytes"); }};

// The least limit of a group and those around it. A container may show its own group as the root, under any reported path.
template <typename Read>
std::optional<double> least_on_the_way(const std::string& root, std::string path, const Read& read) {
  std::optional<double> least = read(root);
  for (; path.size() > 1; path.resize(path.rfind('/'))) {
    if (std::optional<double> limit = read(root + path)) {
      least = std::min(least.value_or(*limit), *limit);
    }
  }
  return least;
}

bool has_controller(const std::string& controllers, const std::string& wanted) {
  std::istringstream in(controllers);
  for (std::string name; std::getline(in, name, ',');) {
    if (name == wanted) {
      return true;
    }
  }
  return false;
}

std::optional<double> read_limit(const Limit& limit, const std::string& root, const std::string& membership) {
  std::ifstream lines(membership);
  std::optional<double> least;
  for (std::string line; std::getline(lines, line);) { // "0::/path" of v2, "4:cpu,cpuacct:/path" of v1
    size_t first = line.find(':');
    size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    std::optional<double> found;
    if (controllers.empty()) {
      found = least_on_the_way(root, path, limit.of_v2);
    } else if (has_controller(controllers, limit.controller)) {
      found = least_on_the_way(root + "/" + controllers, path, limit.of_v1);
    }
    if (found) {
      least = std::min(least.value_or(*found), *found);
    }
  }
  return least;
}

} // namespace

std::optional<double> read_quota(const std::string& root, const std::string& membership) {
  return read_limit(kQuota, root, membership);
}

std::optional<double> read_memory_limit(const std::string& root, const std::string& membership) {
  return read_limit(kMemory, root, membership);
}

} // namespace torch_xla::control_group
