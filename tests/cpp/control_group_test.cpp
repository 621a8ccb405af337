// Limits of control groups, out of files like Linux's.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "core/control_group.h"

namespace torch_xla::control_group {
namespace {

class ControlGroup : public testing::Test {
 protected:
  ControlGroup() : root_(std::filesystem::temp_directory_path() / ("xla_groups_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(root_);
  }
  ~ControlGroup() override {
    std::filesystem::remove_all(root_);
  }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::optional<double> read() {
    return read_quota(root_.string(), (root_ / "membership").string());
  }
  std::optional<double> read_memory() {
    return read_memory_limit(root_.string(), (root_ / "membership").string());
  }
  std::filesystem::path root_;
};

TEST_F(ControlGroup, NoGroupSetsNone) {
  EXPECT_EQ(read(), std::nullopt);
  write("membership", "0::/a\nnonsense\n");
  EXPECT_EQ(read(), std::nullopt);
  write("a/cpu.max", "max 100000\n");
  EXPECT_EQ(read(), std::nullopt);
}

TEST_F(ControlGroup, TheLeastOnTheWayToTheRootOfVersion2) {
  write("membership", "0::/a/b\n");
  write("a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(read(), 4);
  write("a/cpu.max", "150000 100000\n");
  EXPECT_EQ(read(), 1.5);
  write("cpu.max", "50000 100000\n");
  EXPECT_EQ(read(), 0.5);
}

TEST_F(ControlGroup, TheProcessorsControllerOfVersion1) {
  write("membership", "5:cpuset:/x\n4:cpu,cpuacct:/docker/c\n0::/\n");
  write("cpuset/x/cpu.cfs_quota_us", "1000\n");
  write("cpuset/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read(), std::nullopt);
  write("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read(), std::nullopt);
  write("cpu,cpuacct/docker/c/cpu.cfs_quota_us", "300000\n");
  write("cpu,cpuacct/docker/c/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read(), 3);
}

TEST_F(ControlGroup, MemoryOfBothVersions) {
  write("membership", "4:memory:/docker/c\n0::/a\n");
  EXPECT_EQ(read_memory(), std::nullopt);
  write("a/memory.max", "max\n");
  EXPECT_EQ(read_memory(), std::nullopt);
  write("memory/docker/c/memory.limit_in_bytes", "2147483648\n");
  EXPECT_EQ(read_memory(), 2147483648.0);
  write("memory.max", "1073741824\n");
  EXPECT_EQ(read_memory(), 1073741824.0);
}

} // namespace
} // namespace torch_xla::control_group
