// Environment variables of the package, each read at its first use.
#include "core/env.h"

#include <strings.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <initializer_list>

#include "core/errors.h"
#include "core/log_file.h"
#include "core/paths.h"

namespace torch_xla::env {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& value, const std::string& allowed) {
  throw UserError(ErrorKind::Value, str("the environment variable ", name, "=", value, " is not understood; it can be ", allowed));
}

bool is_one_of(const std::string& value, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* word) { return ::strcasecmp(word, value.c_str()) == 0; });
}

// The whole text as a number for which `fits` holds, else refused.
template <typename T, typename Fits>
T parse(const Variable& variable, Fits fits) {
  std::string value = text(variable);
  T number{};
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !fits(number)) {
    refuse(variable.name, value, accepted(variable));
  }
  return number;
}

std::atomic<bool>& fusion_flag() {
  static std::atomic<bool> on{flag(variable("XLA_FUSION"))};
  return on;
}

std::atomic<bool>& lazy_flag() {
  static std::atomic<bool> on{flag(variable("XLA_LAZY"))};
  return on;
}

bool verifies_unasked() {
#ifndef NDEBUG
  return true;
#else
  return debug_level() >= 3;
#endif
}

LogFile& debug_file() {
  static auto* file = new LogFile("XLA_DEBUG_FILE", text(variable("XLA_DEBUG_FILE")));
  return *file;
}

} // namespace

std::optional<std::string> find(const Variable& variable) {
  const char* value = std::getenv(variable.name);
  return value ? std::make_optional<std::string>(value) : std::nullopt;
}

bool is_set(const Variable& variable) {
  return !find(variable).value_or("").empty();
}

std::string text(const Variable& variable) {
  const char* value = std::getenv(variable.name);
  const std::string found = value && *value ? value : variable.otherwise;
  return variable.accepts.kind == Kind::kPath ? full_path(found) : found;
}

bool parse_flag(const std::string& name, const std::string& text) {
  bool on = is_one_of(text, {"1", "true", "yes", "on"});
  if (!on && !is_one_of(text, {"0", "false", "no", "off"})) {
    refuse(name, text, "1, true, yes or on, or 0, false, no or off");
  }
  return on;
}

bool flag(const Variable& variable) {
  return parse_flag(variable.name, text(variable));
}

int64_t integer(const Variable& variable) {
  const Accepts& range = variable.accepts;
  return parse<int64_t>(variable, [&](int64_t number) { return number >= range.low && number <= range.high; });
}

int64_t integer_or(const Variable& variable, int64_t otherwise) {
  return is_set(variable) ? integer(variable) : otherwise;
}

double share(const Variable& variable) {
  return parse<double>(variable, [](double number) { return number > 0 && number <= 1; });
}

void check(const Variable& variable) {
  if (!is_set(variable)) {
    return;
  }
  switch (variable.accepts.kind) {
    case Kind::kText:
    case Kind::kPath:
      break;
    case Kind::kSwitch:
      flag(variable);
      break;
    case Kind::kInteger:
      integer(variable);
      break;
    case Kind::kShare:
      share(variable);
      break;
  }
}

std::string accepted(const Variable& variable) {
  switch (variable.accepts.kind) {
    case Kind::kText:
    case Kind::kPath:
      break;
    case Kind::kSwitch:
      return "a switch";
    case Kind::kInteger:
      return str("a whole number from ", variable.accepts.low, " to ", variable.accepts.high);
    case Kind::kShare:
      return "a number over 0, at most 1";
  }
  return variable.accepts.words;
}

void check() {
  if (debug_level() > 0) {
    debug_file();
  }
  verify();
  fusion();
  lazy();
  float_storage();
  cache_dir();
  cache_is_read_only();
  has_plain_executables();
  program_cache_size();
  interpreted_operations();
  cpu_num_devices();
}

int debug_level() {
  static const auto level = static_cast<int>(integer(variable("XLA_DEBUG")));
  return level;
}

void debug_print(const std::string& title, const std::string& text) {
  debug_file().append(str("[torch_xla] ", title, "\n", text, text.empty() || text.back() == '\n' ? "" : "\n"));
}

bool verify() {
  static const bool on = is_set(variable("XLA_VERIFY")) ? flag(variable("XLA_VERIFY")) : verifies_unasked();
  return on;
}

bool fusion() {
  return fusion_flag().load(std::memory_order_relaxed);
}

bool lazy() {
  return lazy_flag().load(std::memory_order_relaxed);
}

FloatStorage float_storage() {
  static const FloatStorage storage = flag(variable("XLA_USE_BF16")) ? FloatStorage::kBf16
      : flag(variable("XLA_DOWNCAST_BF16"))                          ? FloatStorage::kHalf
                                                                     : FloatStorage::kFull;
  return storage;
}

std::string cache_dir() {
  if (std::optional<std::string> path = find(variable("XLA_PERSISTENT_CACHE_PATH"))) {
    return full_path(*path);
  }
  std::string home = text(variable("HOME"));
  return home.empty() ? home : home + "/.cache/torch_xla";
}

bool cache_is_read_only() {
  return flag(variable("XLA_PERSISTENT_CACHE_READ_ONLY"));
}

bool has_plain_executables() {
  return flag(variable("XLA_PLAIN_EXECUTABLES"));
}

size_t program_cache_size() {
  static const auto size = static_cast<size_t>(integer(variable("XLA_COMPILATION_CACHE_SIZE")));
  return size;
}

int64_t interpreted_operations() {
  static const int64_t operations = integer(variable("XLA_INTERPRETED_OPERATIONS"));
  return operations;
}

int cpu_num_devices() {
  static const auto count = static_cast<int>(integer(variable("CPU_NUM_DEVICES")));
  return count;
}

void set_fusion(bool on) {
  fusion_flag().store(on, std::memory_order_relaxed);
}

void set_lazy(bool on) {
  lazy_flag().store(on, std::memory_order_relaxed);
}

} // namespace torch_xla::env
