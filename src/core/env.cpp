// Environment variables of the package, each read at its first use.
#include "core/env.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace torch_xla::env {
namespace {

int read_int(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

std::atomic<bool>& fusion_flag() {
  static std::atomic<bool> flag{read_int("XLA_FUSION", 1) != 0};
  return flag;
}

std::atomic<bool>& lazy_flag() {
  static std::atomic<bool> flag{read_int("XLA_LAZY", 1) != 0};
  return flag;
}

// stderr where XLA_DEBUG_FILE is not set or cannot be written.
std::FILE* debug_file() {
  static std::FILE* file = [] {
    const char* path = std::getenv("XLA_DEBUG_FILE");
    std::FILE* opened = path && *path ? std::fopen(path, "a") : nullptr;
    return opened ? opened : stderr;
  }();
  return file;
}

std::string read_cache_dir() {
  if (const char* path = std::getenv("XLA_PERSISTENT_CACHE_PATH")) {
    return path;
  }
  const char* home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.cache/torch_xla" : std::string();
}

} // namespace

int debug_level() {
  static const int level = read_int("XLA_DEBUG", 0);
  return level;
}

void debug_print(const std::string& title, const std::string& text) {
  // One lock for the whole block, so that threads do not mix their lines.
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  std::FILE* file = debug_file();
  std::fprintf(file, "[torch_xla] %s\n%s%s", title.c_str(), text.c_str(), text.empty() || text.back() == '\n' ? "" : "\n");
  std::fflush(file);
}

bool fusion() {
  return fusion_flag().load(std::memory_order_relaxed);
}

bool lazy() {
  return lazy_flag().load(std::memory_order_relaxed);
}

std::string cache_dir() {
  static const std::string* dir = new std::string(read_cache_dir());
  return *dir;
}

void set_fusion(bool on) {
  fusion_flag().store(on, std::memory_order_relaxed);
}

void set_lazy(bool on) {
  lazy_flag().store(on, std::memory_order_relaxed);
}

} // namespace torch_xla::env
