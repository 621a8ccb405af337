// What is known of the machine, and where it is kept.
#include "engine/cpu/host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "engine/cpu/library/speed.h"

namespace torch_xla::cpu {
namespace {

namespace fs = std::filesystem;

TEST(Host, IsWhatTheSystemTells) {
  EXPECT_GE(host().processors, 1);
  EXPECT_LE(host().processors, static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_GE(host().second_cache_bytes, 1 << 16);
  EXPECT_GT(unit_ns(), 100);
  EXPECT_LT(unit_ns(), 1e6);
}

TEST(Host, AQuotaLeavesOneProcessorAtLeast) {
  EXPECT_EQ(usable_processors(2, std::nullopt), 2);
  EXPECT_EQ(usable_processors(1, std::nullopt), 1);
  EXPECT_EQ(usable_processors(2, 0.5), 1);
  EXPECT_EQ(usable_processors(2, 0.1), 1);
  EXPECT_EQ(usable_processors(2, 1.5), 2);
  EXPECT_EQ(usable_processors(64, 1.4), 1);
  EXPECT_EQ(usable_processors(64, 16), 16);
  EXPECT_EQ(usable_processors(2, 16), 2) << "of a machine with more";
}

TEST(Host, RefusesSpeedsThatNoMachineHas) {
  const Speeds speeds{.products = 58.25, .numbers = 3.5};
  const std::optional<Speeds> read = read_speeds(text_of(speeds));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->products, speeds.products);
  EXPECT_EQ(read->numbers, speeds.numbers);
  for (const char* text : {"", "58", "58 x", "58 3 1", "0 3", "58 -3", "58 inf", "nan 3", "1e30 3"}) {
    EXPECT_FALSE(read_speeds(text)) << text;
  }
}

// A folder of its own, which is removed.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("xla_host_test_" + std::to_string(::getpid()))) {
    fs::create_directory(path_);
    fs::permissions(path_, fs::perms::owner_all);
  }
  ~Folder() {
    fs::remove_all(path_);
  }
  std::string inner() const {
    return path_ / "host";
  }
  fs::path file() const {
    for (const fs::directory_entry& entry : fs::directory_iterator(inner())) {
      if (entry.path().extension() == ".o") {
        return entry.path();
      }
    }
    return {};
  }

 private:
  fs::path path_;
};

int num_measured = 0;
Speeds measure_next() {
  return {.products = 50.0 + ++num_measured, .numbers = 4};
}

double products(const Folder& folder, bool read_only = false) {
  return find_or_measure(folder.inner(), read_only, measure_next).products;
}

TEST(Host, KeepsWhatWasMeasured) {
  num_measured = 0;
  const Folder folder;
  EXPECT_EQ(products(folder, /*read_only=*/true), 51) << "nothing is written";
  EXPECT_EQ(products(folder), 52);
  EXPECT_EQ(products(folder), 52);
  EXPECT_EQ(products(folder, /*read_only=*/true), 52);
  fs::resize_file(folder.file(), fs::file_size(folder.file()) - 1);
  EXPECT_EQ(products(folder), 53) << "a damaged file";
  EXPECT_EQ(products(folder), 53);
  std::ofstream(folder.file()) << "speeds of another machine";
  EXPECT_EQ(products(folder), 54);
  EXPECT_EQ(find_or_measure("", false, measure_next).products, 55) << "kept nowhere";
  EXPECT_EQ(find_or_measure("/proc/nowhere", false, measure_next).products, 56) << "where nothing can be written";
}

TEST(Host, ClocksThatStandStillGiveTheUsualSpeeds) {
  auto no_time = [] { return Speeds{.products = std::numeric_limits<double>::infinity(), .numbers = 1}; };
  EXPECT_EQ(find_or_measure("", false, no_time).products, Speeds().products);
}

TEST(Host, SeveralMayMeasureAtOnce) {
  const Folder folder;
  std::vector<std::thread> threads;
  std::vector<Speeds> found(8);
  for (Speeds& speeds : found) {
    threads.emplace_back([&] { speeds = find_or_measure(folder.inner(), false, [] { return Speeds{.products = 60, .numbers = 5}; }); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Speeds& speeds : found) {
    EXPECT_EQ(speeds.products, 60);
  }
  EXPECT_EQ(products(folder), 60);
}

TEST(Host, IsMeasured) {
  EXPECT_TRUE(read_speeds(text_of(measure_speeds())));
}

} // namespace
} // namespace torch_xla::cpu
