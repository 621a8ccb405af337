// What the control groups of this process allow it: processors' time and memory. See cgroups(7).
#pragma once

#include <optional>
#include <string>

namespace torch_xla::control_group {

// `membership` is a file like /proc/self/cgroup, `root` where the hierarchies are mounted. Where several groups set a limit, on the way to
// the root, it is the least one; nothing where none does.

// How many processors' time: cpu.max, or v1's cpu.cfs_quota_us.
std::optional<double> read_quota(const std::string& root = "/sys/fs/cgroup", const std::string& membership = "/proc/self/cgroup");
// Bytes: memory.max, or v1's memory.limit_in_bytes, which is a very large number where there is no limit.
std::optional<double> read_memory_limit(const std::string& root = "/sys/fs/cgroup", const std::string& membership = "/proc/self/cgroup");

} // namespace torch_xla::control_group
