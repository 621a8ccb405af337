// Environment variables of the package, each read at its first use.
#include "core/env.h"

#include <strings.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <mutex>

#include "core/errors.h"

namespace torch_xla::env {
namespace {

[[noreturn]] void refuse(const char* name, const std::string& value, const std::string& allowed) {
  throw UserError(ErrorKind::Value, str("the environment variable ", name, "=", value, " is not understood; it can be ", allowed));
}

bool is_one_of(const std::string& value, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* word) { return ::strcasecmp(word, value.c_str()) == 0; });
}

// False unless the whole text is a number.
template <typename T>
bool parse(const std::string& value, T& number) {
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc() && end == value.data() + value.size();
}

std::atomic<bool>& fusion_flag() {
  static std::atomic<bool> on{flag("XLA_FUSION", true)};
  return on;
}

std::atomic<bool>& lazy_flag() {
  static std::atomic<bool> on{flag("XLA_LAZY", true)};
  return on;
}

std::FILE* open_debug_file() {
  std::string path = text("XLA_DEBUG_FILE");
  if (path.empty()) {
    return stderr;
  }
  std::FILE* file = std::fopen(path.c_str(), "a");
  XLA_CHECK_KIND(Value, file, "the file that XLA_DEBUG_FILE names, ", path, ", cannot be written: ", std::strerror(errno));
  return file;
}

std::FILE* debug_file() {
  static std::FILE* file = open_debug_file();
  return file;
}

std::string read_cache_dir() {
  if (std::optional<std::string> path = find("XLA_PERSISTENT_CACHE_PATH")) {
    return *path;
  }
  std::string home = text("HOME");
  return home.empty() ? home : home + "/.cache/torch_xla";
}

} // namespace

std::optional<std::string> find(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::make_optional<std::string>(value) : std::nullopt;
}

std::string text(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

bool flag(const char* name, bool otherwise) {
  std::string value = text(name);
  if (value.empty()) {
    return otherwise;
  }
  bool on = is_one_of(value, {"1", "true", "yes", "on"});
  if (!on && !is_one_of(value, {"0", "false", "no", "off"})) {
    refuse(name, value, "1, true, yes or on, or 0, false, no or off");
  }
  return on;
}

int64_t integer(const char* name, int64_t otherwise, int64_t low, int64_t high) {
  std::string value = text(name);
  int64_t number = otherwise;
  if (!value.empty() && (!parse(value, number) || number < low || number > high)) {
    refuse(name, value, str("a whole number from ", low, " to ", high));
  }
  return number;
}

double share(const char* name, double otherwise) {
  std::string value = text(name);
  double number = otherwise;
  if (!value.empty() && (!parse(value, number) || !(number > 0 && number <= 1))) {
    refuse(name, value, "a number over 0, at most 1");
  }
  return number;
}

void check() {
  if (debug_level() > 0) {
    debug_file();
  }
  fusion();
  lazy();
  cache_dir();
  program_cache_size();
}

int debug_level() {
  static const auto level = static_cast<int>(integer("XLA_DEBUG", 0, 0, 5));
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

size_t program_cache_size() {
  static const auto size = static_cast<size_t>(integer("XLA_COMPILATION_CACHE_SIZE", 2048, 1, 1 << 20));
  return size;
}

void set_fusion(bool on) {
  fusion_flag().store(on, std::memory_order_relaxed);
}

void set_lazy(bool on) {
  lazy_flag().store(on, std::memory_order_relaxed);
}

} // namespace torch_xla::env
