// Limits of this process's control groups: processor time and memory. See cgroups(7).
#pragma once

#include <optional>
#include <string>

namespace torch_xla::control_group {

// `membership` is a file like /proc/self/cgroup, `root` is the mount point of the hierarchies. The result is the least limit of all groups
// on the way to the root, or nothing if none sets one.

// The quota of processor time, in processors: cpu.max, or v1's cpu.cfs_quota_us.
std::optional<double> read_quota(const std::string& root = "/sys/fs/cgroup", const std::string& membership = "/proc/self/cgroup");
// Bytes: memory.max, or v1's memory.limit_in_bytes, a very large number if there is no limit.
std::optional<double> read_memory_limit(const std::string& root = "/sys/fs/cgroup", const std::string& membership = "/proc/self/cgroup");

} // namespace torch_xla::control_group
