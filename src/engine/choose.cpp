// The engine that PJRT_DEVICE names.
#include <atomic>
#include <charconv>
#include <mutex>
#include <sstream>
#include <variant>

#include "core/env.h"
#include "core/first_use.h"
#include "core/paths.h"
#include "engine/compile_only.h"
#include "engine/engine.h"
#include "engine/pjrt/compile_only_engine.h"
#include "engine/pjrt/pjrt_engine.h"
#include "engine/program_store.h"

namespace torch_xla {
namespace {

constexpr const char* kAllowed =
    "CPU (the embedded engine, the default), CUDA, TPU, LIBRARY with the path of a PJRT plugin in PJRT_LIBRARY_PATH, or a name given to "
    "torch_xla.experimental.plugins.register_plugin";

constexpr const char* kEmbedded = "CPU";

std::string chosen_by_environment() {
  bool is_chosen = env::is_set(env::variable("PJRT_DEVICE")) || env::flag(env::variable("PJRT_SELECT_DEFAULT_DEVICE"));
  XLA_CHECK(is_chosen, "PJRT_SELECT_DEFAULT_DEVICE is off and PJRT_DEVICE is not set: set it to ", kAllowed);
  return env::text(env::variable("PJRT_DEVICE"));
}

struct Choice {
  std::atomic<PluginFinder> find{nullptr};
  std::atomic<TargetFinder> find_target{nullptr};
  std::mutex mutex; // guards the making of the engine and `device`
  std::string device;
  std::atomic<Engine*> engine{nullptr};
};

Choice& choice() {
  static auto* c = new Choice;
  return *c;
}

std::string library_path() {
  std::string path = env::text(env::variable("PJRT_LIBRARY_PATH"));
  XLA_CHECK(!path.empty(), "PJRT_DEVICE=LIBRARY needs the path of a PJRT plugin in PJRT_LIBRARY_PATH, which is not set");
  return path.find('/') == path.npos ? path : full_path(path); // the loader searches for a bare name
}

[[noreturn]] void refuse_device(const std::string& device) {
  XLA_CHECK(device != "CUDA", "PJRT_DEVICE=CUDA needs the PJRT plugin of a wheel that is not installed: jax-cuda13-plugin[with-cuda]");
  XLA_CHECK(device != "TPU", "PJRT_DEVICE=TPU needs the PJRT plugin of a wheel that is not installed: libtpu");
  throw UserError(ErrorKind::Value, str("PJRT_DEVICE=", device, " is not known; allowed are ", kAllowed));
}

// A whole number, true or false, else a text.
NamedValue option_value(const std::string& text) {
  int64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (!text.empty() && error == std::errc() && end == text.data() + text.size()) {
    return number;
  }
  return text == "true" || text == "false" ? NamedValue(text == "true") : NamedValue(text);
}

NamedValues library_options() {
  std::string text = env::text(env::variable("PJRT_LIBRARY_OPTIONS"));
  NamedValues options;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    size_t equals = part.find('=');
    XLA_CHECK_KIND(
        Value,
        equals != part.npos && equals > 0,
        "PJRT_LIBRARY_OPTIONS=",
        text,
        ": \"",
        part,
        "\" is no option; wanted is name=value, or several with commas between them");
    options[part.substr(0, equals)] = option_value(part.substr(equals + 1));
  }
  return options;
}

PluginFile find_plugin(const std::string& device) {
  if (device == "LIBRARY") {
    return PluginFile{library_path(), library_options()};
  }
  PluginFinder find = choice().find;
  std::optional<PluginFile> plugin = find ? find(device) : std::nullopt;
  if (!plugin) {
    refuse_device(device);
  }
  return *std::move(plugin);
}

CompileTarget find_target(const std::string& device, const std::string& name) {
  XLA_CHECK_KIND(
      Value,
      device != kEmbedded,
      "XLA_COMPILE_ONLY=",
      name,
      " needs the plugin that compiles for it in PJRT_DEVICE: TPU, CUDA, TT, or another plugin's name");
  if (device == "LIBRARY") {
    CompileTarget target;
    target.name = target.topology = name;
    target.plugin = library_path();
    target.options = library_options();
    return target;
  }
  TargetFinder find = choice().find_target;
  std::optional<CompileTarget> target = find ? find(device, name) : std::nullopt;
  if (!target) {
    refuse_device(device);
  }
  return *std::move(target);
}

// What PJRT_DEVICE and XLA_COMPILE_ONLY name: nothing for the embedded engine.
std::variant<std::monostate, PluginFile, CompileTarget> find_chosen(const std::string& device) {
  if (std::string target = env::text(env::variable("XLA_COMPILE_ONLY")); !target.empty()) {
    return find_target(device, target);
  }
  if (device == kEmbedded) {
    return {};
  }
  return find_plugin(device);
}

Engine& open(const std::string& device, const std::variant<std::monostate, PluginFile, CompileTarget>& chosen) {
  if (auto* target = std::get_if<CompileTarget>(&chosen)) {
    return *open_compile_only_engine(device, *target);
  }
  if (auto* plugin = std::get_if<PluginFile>(&chosen)) {
    return *open_pjrt_engine(device, *plugin);
  }
  return cpu_engine();
}

// Programs have a folder of their own, so that the many more kernels do not push them out. A folder within a refused one is refused too.
void open_caches(Engine& engine) {
  std::string path = env::cache_dir();
  bool read_only = env::cache_is_read_only();
  bool opened = !path.empty() && open_cache_directory(path, read_only);
  engine.set_cache_directory(opened ? path : std::string(), read_only);
  ProgramStore::get().set_directory(opened ? path + "/programs" : std::string(), read_only);
}

} // namespace

void Engine::run_over_all_devices() {
  throw UserError(ErrorKind::NotImplemented, str("programs over several devices are not there on ", hardware()));
}

Engine& engine() {
  Choice& c = choice();
  if (Engine* engine = c.engine.load(std::memory_order_acquire)) {
    return *engine;
  }
  first_use::begin();
  env::check();
  std::string device = chosen_by_environment();
  const auto chosen = find_chosen(device); // may take the GIL; a thread waiting for the mutex may hold that
  std::lock_guard<std::mutex> lock(c.mutex);
  if (!c.engine.load(std::memory_order_relaxed)) {
    Engine& made = open(device, chosen);
    open_caches(made);
    c.engine.store(&made, std::memory_order_release);
    c.device = device;
  }
  return *c.engine.load(std::memory_order_relaxed);
}

void check_choice() {
  if (!choice().engine.load(std::memory_order_acquire)) {
    find_chosen(chosen_by_environment());
  }
}

void reopen_caches() {
  if (Engine* engine = choice().engine.load(std::memory_order_acquire)) {
    open_caches(*engine);
  }
}

// Whether the environment chooses the embedded engine.
static bool chooses_embedded() {
  return chosen_by_environment() == kEmbedded && !env::is_set(env::variable("XLA_COMPILE_ONLY"));
}

int num_devices() {
  bool is_open = choice().engine.load(std::memory_order_acquire);
  return is_open || !chooses_embedded() ? engine().num_devices() : env::cpu_num_devices();
}

int num_visible_devices() noexcept {
  try {
    bool is_open = choice().engine.load(std::memory_order_acquire);
    return is_open || chooses_embedded() ? num_devices() : 1;
  } catch (const UserError&) {
    return 0;
  }
}

void check_device(int64_t device) {
  int count = num_devices();
  XLA_CHECK(
      device >= 0 && device < count,
      "device index ",
      device,
      " does not exist: ",
      count == 1 ? "there is one xla device, xla:0" : str("there are ", count, " xla devices, xla:0 to xla:", count - 1));
}

std::string chosen_device() {
  Choice& c = choice();
  std::lock_guard<std::mutex> lock(c.mutex);
  return c.device;
}

void set_plugin_finder(PluginFinder find) {
  choice().find = find;
}

void set_target_finder(TargetFinder find) {
  choice().find_target = find;
}

} // namespace torch_xla
