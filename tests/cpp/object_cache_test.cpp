// Compiled code on disk: what is found again, what is a miss, whose directory is refused, and the limit of size.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "engine/object_cache.h"

namespace torch_xla {
namespace {

namespace fs = std::filesystem;

class ObjectCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(parent_);
  }
  void TearDown() override {
    fs::remove_all(parent_);
  }
  fs::path file_of(const std::string& key) const {
    for (const fs::path& file : files()) {
      if (read(file).find(key) != std::string::npos) {
        return file;
      }
    }
    return {};
  }
  static std::string read(const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static void write(const fs::path& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
    fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      if (entry.path().extension() == ".o") {
        all.push_back(entry.path());
      }
    }
    return all;
  }
  // What set_directory() warns of; the cache is on if that is nothing.
  std::string warning() {
    testing::internal::CaptureStderr();
    cache_.set_directory(directory_);
    return testing::internal::GetCapturedStderr();
  }
  static mode_t mode_of(const fs::path& path) {
    struct stat info = {};
    stat(path.c_str(), &info);
    return info.st_mode & 0777;
  }

  const fs::path parent_ = fs::path(testing::TempDir()) / ("xla_object_cache_" + std::to_string(getpid()));
  const fs::path directory_ = parent_ / "new/cache";
  ObjectCache cache_;
};

TEST_F(ObjectCacheTest, FindsWhatWasPut) {
  EXPECT_EQ(warning(), "");
  EXPECT_EQ(cache_.find("key"), std::nullopt);
  cache_.put("key", "object");
  cache_.put("other key", std::string("\0x", 2));
  EXPECT_EQ(cache_.find("key"), "object");
  EXPECT_EQ(cache_.find("other key"), std::string("\0x", 2));
  EXPECT_EQ(mode_of(directory_.parent_path()), 0700u);
  EXPECT_EQ(mode_of(directory_), 0700u);
  EXPECT_EQ(mode_of(files()[0]), 0600u);
  cache_.set_directory("");
  EXPECT_EQ(cache_.find("key"), std::nullopt);
}

TEST_F(ObjectCacheTest, DamageIsAMiss) {
  warning();
  cache_.put("key", "object");
  const fs::path file = file_of("key");
  const std::string good = read(file);
  for (const std::string& bytes :
       {good.substr(0, 5), good.substr(0, good.size() - 1), good + "x", std::string(), std::string(good.size(), 'x')}) {
    write(file, bytes);
    EXPECT_EQ(cache_.find("key"), std::nullopt) << bytes.size();
  }
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bytes = good;
    bytes[i] ^= 1;
    write(file, bytes);
    EXPECT_EQ(cache_.find("key"), std::nullopt) << i;
  }
  cache_.put("key", "object");
  EXPECT_EQ(cache_.find("key"), "object") << "a damaged file is replaced";
}

TEST_F(ObjectCacheTest, FilesOfAnotherLengthAreMisses) {
  warning();
  cache_.put("key", "object");
  const fs::path file = file_of("key");
  const std::string good = read(file);
  for (uintmax_t size : {uintmax_t{0}, uintmax_t{7}, uintmax_t{good.size() - 1}, uintmax_t{good.size() + 1}, uintmax_t{1} << 40}) {
    fs::resize_file(file, size); // sparse: no disk holds the last one
    EXPECT_EQ(cache_.find("key"), std::nullopt) << size;
    cache_.put("key", "object");
    EXPECT_EQ(cache_.find("key"), "object") << "it was written again";
  }
}

TEST_F(ObjectCacheTest, WrongLengthsInAFileAreMisses) {
  warning();
  cache_.put("key", "object");
  const fs::path file = file_of("key");
  const std::string good = read(file);
  std::mt19937_64 random(0);
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = good;
    const uint64_t length = random() >> (random() % 64);
    std::memcpy(bytes.data() + 24 + 8 * (random() % 2), &length, sizeof length); // of the key or of the object
    write(file, bytes);
    EXPECT_TRUE(!cache_.find("key") || bytes == good) << length;
  }
}

TEST_F(ObjectCacheTest, AnotherKeysFileIsAMiss) {
  warning();
  cache_.put("key 1", "object 1");
  cache_.put("key 2", "object 2");
  const fs::path one = file_of("key 1");
  const fs::path two = file_of("key 2");
  fs::rename(one, parent_ / "swap");
  fs::rename(two, one);
  fs::rename(parent_ / "swap", two);
  EXPECT_EQ(cache_.find("key 1"), std::nullopt);
  EXPECT_EQ(cache_.find("key 2"), std::nullopt);
}

TEST_F(ObjectCacheTest, WhatIsNoRegularFileIsAMiss) {
  warning();
  cache_.put("key", "object");
  const fs::path file = file_of("key");
  fs::rename(file, parent_ / "target");
  fs::create_symlink(parent_ / "target", file);
  EXPECT_EQ(cache_.find("key"), std::nullopt);
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_EQ(cache_.find("key"), std::nullopt);
  cache_.put("key", "object"); // cannot be written: no error
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(cache_.find("key"), std::nullopt) << "does not wait for a writer";
  cache_.put("key", "object");
  EXPECT_EQ(cache_.find("key"), "object");
}

TEST_F(ObjectCacheTest, FilesThatOthersMayWriteAreMisses) {
  warning();
  cache_.put("key", "object");
  fs::permissions(file_of("key"), fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(cache_.find("key"), std::nullopt);
}

TEST_F(ObjectCacheTest, DirectoriesThatOthersMayWriteAreRefused) {
  warning();
  cache_.put("key", "object");
  for (fs::perms bit : {fs::perms::others_write, fs::perms::group_write}) {
    fs::permissions(directory_, fs::perms::owner_all | bit);
    std::string text = warning();
    EXPECT_NE(text.find(directory_.string()), text.npos) << text;
    EXPECT_NE(text.find("others may write to it"), text.npos) << text;
    EXPECT_EQ(cache_.find("key"), std::nullopt);
    cache_.put("new key", "object");
    EXPECT_EQ(files().size(), 1u);
  }
  fs::permissions(directory_, fs::perms::owner_all);
  EXPECT_EQ(warning(), "");
  EXPECT_EQ(cache_.find("key"), "object");
}

TEST_F(ObjectCacheTest, DirectoriesOfAnotherUserAreRefused) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can give a directory to another user";
  }
  warning();
  cache_.put("key", "object");
  ASSERT_EQ(chown(directory_.c_str(), 12345, 12345), 0);
  EXPECT_NE(warning().find("it belongs to another user"), std::string::npos);
  EXPECT_EQ(cache_.find("key"), std::nullopt);
}

TEST_F(ObjectCacheTest, NoDirectoryIsNoError) {
  for (const char* path : {"/proc/none/cache", "/dev/null"}) {
    cache_.set_directory(path);
    cache_.put("key", "object");
    EXPECT_EQ(cache_.find("key"), std::nullopt);
  }
}

void set_age(const fs::path& file, int hours) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(hours));
}

TEST_F(ObjectCacheTest, TheOldestFilesArePruned) {
  warning();
  for (int i = 0; i < 40; ++i) {
    std::string key = "key " + std::to_string(i) + ".";
    cache_.put(key, std::string(100, 'x'));
    set_age(file_of(key), 10 + i);
  }
  EXPECT_EQ(cache_.find("key 39.").value().size(), 100u); // is used now
  write(directory_ / "abc.o.1.2", "half");
  write(directory_ / "abc.o.3.4", "half");
  set_age(directory_ / "abc.o.1.2", 2);
  prune_cache(directory_, {.bytes = 1 << 30, .files = 50});
  EXPECT_EQ(files().size(), 40u);
  EXPECT_FALSE(fs::exists(directory_ / "abc.o.1.2")) << "its writer has ended";
  EXPECT_TRUE(fs::exists(directory_ / "abc.o.3.4"));
  prune_cache(directory_, {.bytes = 1 << 30, .files = 20});
  EXPECT_EQ(files().size(), 18u);
  EXPECT_TRUE(cache_.find("key 0.") && cache_.find("key 16.") && cache_.find("key 39."));
  EXPECT_FALSE(cache_.find("key 17."));
  prune_cache(directory_, {.bytes = 10 * 4096, .files = 50});
  EXPECT_LE(files().size(), 10u);
  EXPECT_FALSE(files().empty());
}

TEST_F(ObjectCacheTest, IsPrunedWhenOpenedOnceAnHour) {
  CacheLimits limits{.bytes = 1 << 30, .files = 5};
  cache_.set_directory(directory_, limits);
  for (int i = 0; i < 10; ++i) {
    cache_.put(std::to_string(i), "object");
  }
  cache_.set_directory(directory_, limits);
  EXPECT_EQ(files().size(), 10u);
  set_age(directory_ / "pruned", 2);
  cache_.set_directory(directory_, limits);
  EXPECT_EQ(files().size(), 4u);
}

TEST_F(ObjectCacheTest, IsPrunedWhileAProcessWrites) {
  cache_.set_directory(directory_, {.bytes = 1 << 30, .files = 100});
  for (int64_t i = 0; i < ObjectCache::kPutsPerPrune + 10; ++i) {
    cache_.put(std::to_string(i), "object");
  }
  EXPECT_EQ(files().size(), 100u);
}

} // namespace
} // namespace torch_xla
