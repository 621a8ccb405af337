// Asks the system once, and keeps what was measured in the folder of compiled code.
#include "engine/cpu/host.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <sstream>
#include <utility>

#include "core/control_group.h"
#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/host_key.h"
#include "engine/cpu/library/speed.h"
#include "engine/cpu/threads/processors.h"
#include "engine/object_cache.h"

namespace torch_xla::cpu {
namespace {

Host read_host() {
  Host host;
  host.processors = usable_processors(std::max(1, static_cast<int>(allowed_processors().size())), control_group::read_quota());
  const int64_t second_cache = sysconf(_SC_LEVEL2_CACHE_SIZE); // 0 or -1 where the system does not know
  host.second_cache_bytes = second_cache > 0 ? second_cache : host.second_cache_bytes;
  return host;
}

struct Kept {
  std::mutex mutex;
  std::string path; // guarded by mutex
  bool read_only = false; // guarded by mutex
};

Kept& kept() {
  static auto* instance = new Kept;
  return *instance;
}

Speeds find_speeds() {
  std::lock_guard<std::mutex> lock(kept().mutex);
  return find_or_measure(kept().path, kept().read_only, measure_speeds);
}

} // namespace

const Host& host() {
  static const Host instance = read_host();
  return instance;
}

const Speeds& speeds() {
  static const Speeds instance = find_speeds();
  return instance;
}

void set_host_cache_dir(const std::string& path, bool read_only) {
  std::lock_guard<std::mutex> lock(kept().mutex);
  kept().path = path;
  kept().read_only = read_only;
}

double unit_ns() {
  static const double ns =
      (static_cast<double>(kProductsPerThread) / speeds().products + static_cast<double>(kMovedPerThread) / speeds().numbers) / 2;
  return ns;
}

int usable_processors(int allowed, std::optional<double> quota) {
  return quota ? std::clamp(static_cast<int>(std::lround(*quota)), 1, allowed) : allowed;
}

std::string text_of(const Speeds& speeds) {
  return str(speeds.products, " ", speeds.numbers);
}

std::optional<Speeds> read_speeds(const std::string& text) {
  auto is_likely = [](double per_ns) { return per_ns > 0.01 && per_ns < 10'000; };
  Speeds speeds;
  std::istringstream in(text);
  const bool is_whole = in >> speeds.products >> speeds.numbers && (in >> std::ws).eof();
  return is_whole && is_likely(speeds.products) && is_likely(speeds.numbers) ? std::make_optional(speeds) : std::nullopt;
}

// If several processes measure at once, the last one's file stays and each uses its own numbers: only waits depend on them.
Speeds find_or_measure(const std::string& path, bool read_only, Speeds (*measure)()) {
  const std::string key = "speeds of " + host_key();
  ObjectCache files;
  files.set_directory(path, {}, read_only);
  std::optional<std::string> text = files.find(key);
  if (std::optional<Speeds> found = text ? read_speeds(*text) : std::nullopt) {
    return *found;
  }
  const Speeds measured = measure();
  if (!read_speeds(text_of(measured))) {
    return {}; // a clock that stands still
  }
  files.put(key, text_of(measured));
  return measured;
}

} // namespace torch_xla::cpu
