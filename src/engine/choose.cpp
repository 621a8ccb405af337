// The engine that PJRT_DEVICE names.
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "engine/engine.h"
#include "engine/pjrt/pjrt_engine.h"

namespace torch_xla {
namespace {

constexpr const char* kAllowed =
    "CPU (the embedded engine, the default), CUDA, TPU, or LIBRARY with the path of a PJRT plugin in PJRT_LIBRARY_PATH";

struct Choice {
  std::mutex mutex; // guards `plugins` and the making of the engine
  std::map<std::string, std::string> plugins; // path by device
  std::atomic<Engine*> engine{nullptr};
};

Choice& choice() {
  static auto* c = new Choice;
  return *c;
}

std::string read_variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

std::string library_path() {
  std::string path = read_variable("PJRT_LIBRARY_PATH");
  XLA_CHECK(!path.empty(), "PJRT_DEVICE=LIBRARY needs the path of a PJRT plugin in PJRT_LIBRARY_PATH, which is not set");
  return path;
}

std::string plugin_path(const Choice& c, const std::string& device) {
  auto found = c.plugins.find(device);
  XLA_CHECK(
      found != c.plugins.end(),
      "PJRT_DEVICE=",
      device,
      " needs the PJRT plugin of a wheel that is not installed: ",
      device == "TPU" ? "libtpu" : "jax-cuda13-plugin[with-cuda]");
  return found->second;
}

Engine* make_engine(const Choice& c) {
  std::string device = read_variable("PJRT_DEVICE");
  if (device.empty() || device == "CPU") {
    return &cpu_engine();
  }
  XLA_CHECK_KIND(
      Value, device == "CUDA" || device == "TPU" || device == "LIBRARY", "PJRT_DEVICE=", device, " is not known; allowed are ", kAllowed);
  return open_pjrt_engine(device, device == "LIBRARY" ? library_path() : plugin_path(c, device));
}

} // namespace

Engine& engine() {
  Choice& c = choice();
  if (Engine* engine = c.engine.load(std::memory_order_acquire)) {
    return *engine;
  }
  std::lock_guard<std::mutex> lock(c.mutex);
  if (!c.engine.load(std::memory_order_relaxed)) {
    c.engine.store(make_engine(c), std::memory_order_release);
  }
  return *c.engine.load(std::memory_order_relaxed);
}

void offer_plugin(const std::string& device, const std::string& path) {
  Choice& c = choice();
  std::lock_guard<std::mutex> lock(c.mutex);
  c.plugins[device] = path;
}

} // namespace torch_xla
