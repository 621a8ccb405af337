// The engine: buffers, and programs by way of StableHLO, kept on disk where the plugin can serialize them.
#include "engine/pjrt/pjrt_engine.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <string_view>

#include "core/env.h"
#include "core/observer.h"
#include "engine/object_cache.h"
#include "engine/pjrt/executable.h"
#include "passes/passes.h"
#include "stablehlo/writer.h"

namespace torch_xla {
namespace pjrt {
namespace {

class PjrtEngine final : public Engine {
 public:
  explicit PjrtEngine(ClientRef client) : client_(std::move(client)) {
    for (int device = 0; device < client_->num_devices(); ++device) {
      counts_.emplace_back(device);
      fingerprints_.push_back(client_->fingerprint(device));
    }
    std::string folder = env::cache_dir();
    cache_.set_directory(folder.empty() ? folder : folder + "/pjrt");
  }

  int num_devices() const override {
    return client_->num_devices();
  }

  Graph lower(const Graph& trace, int device) const override {
    return run_passes(trace, device, has_stablehlo_form);
  }

  bool runs_library_calls() const override {
    return false;
  }

  std::shared_ptr<Executable> compile(Graph graph, const CompileOptions& options) override {
    Signature signature(graph, choose_aliases(graph, options.donated));
    std::string mlir = write_program(graph, signature, options);
    if (env::debug_level() >= 3) {
      env::debug_print("StableHLO", mlir);
    }
    LoadedExecutableHandle loaded = find_or_compile(options.device, mlir);
    return std::make_shared<PjrtExecutable>(
        std::move(loaded), std::move(signature), options.keep_text ? std::move(mlir) : std::string(), counts_[options.device]);
  }

  EngineBufferRef upload(int device, const Type& type, const Dims& strides, const void* data) override {
    return std::make_shared<PjrtBuffer>(type, client_->upload(device, type, strides, data), counts_[device]);
  }

  EngineBufferRef adopt(int device, const Type& type, const Dims& strides, void* data, std::function<void()> release) override {
    if (strides.empty()) {
      return std::make_shared<PjrtBuffer>(type, client_->adopt(device, type, data, std::move(release)), counts_[device]);
    }
    EngineBufferRef buffer = upload(device, type, strides, data);
    release();
    return buffer;
  }

  void download(const EngineBuffer& buffer, void* data) override {
    client_->download(static_cast<const PjrtBuffer&>(buffer).handle(), buffer.type(), data);
  }

  EngineMemoryInfo memory_info(int device) const override {
    EngineMemoryInfo info;
    return client_->read_memory(device, info) ? info : counts_[device].info();
  }

  void reset_peak_memory(int device) override {
    counts_[device].bytes().reset_peak();
  }

  std::string hardware() const override {
    std::string name = client_->platform_name();
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
    return name;
  }

  NamedValues attributes(int device) const override {
    NamedValues values = client_->device_attributes(device);
    values["kind"] = client_->device_kind(device);
    values["platform_version"] = client_->platform_version();
    return values;
  }

 private:
  std::string write_program(const Graph& graph, const Signature& signature, const CompileOptions& options) const {
    observer::Span span(observer::Phase::kPass, options.device, "write StableHLO");
    return write_stablehlo(graph, {signature.aliases, options.precision.products, convolutions(options.precision), options.location});
  }

  Precision::Level convolutions(const Precision& precision) const {
    return client_->platform_name() == "cuda" ? precision.cuda_convolutions : precision.convolutions;
  }

  // Who compiles the text, and the text without source lines: moving a line in the user's file compiles nothing.
  std::string key_of(int device, std::string_view mlir) const {
    std::string key = fingerprints_[device];
    for (size_t at = 0; at < mlir.size();) {
      std::string_view line = mlir.substr(at, mlir.find('\n', at) - at);
      at += line.size() + 1;
      if (!line.starts_with("#loc")) {
        line = line.substr(0, line.rfind(" loc(#"));
        key += line;
        key += '\n';
      }
    }
    return key;
  }

  // Null where the disk has no program that the plugin takes.
  LoadedExecutableHandle find(const std::string& key) const {
    std::optional<std::string> bytes = cache_.find(key);
    if (!bytes) {
      return {};
    }
    try {
      return client_->load(*bytes);
    } catch (const UserError& error) {
      explain_miss("a program on disk is compiled again", error);
      return {};
    }
  }

  // Many plugins have the function, and fail.
  void keep(const std::string& key, const LoadedExecutableHandle& loaded) {
    try {
      if (std::string bytes = client_->serialize(loaded); !bytes.empty()) {
        cache_.put(key, bytes);
      }
    } catch (const UserError& error) {
      explain_miss("a program is not kept on disk", error);
    }
  }

  static void explain_miss(const char* what, const UserError& error) {
    if (env::debug_level() >= 1) {
      env::debug_print("cache", str(what, ": ", error.what()));
    }
  }

  LoadedExecutableHandle find_or_compile(int device, const std::string& mlir) {
    std::string key = key_of(device, mlir);
    LoadedExecutableHandle loaded = find(key);
    if (loaded.get()) {
      return loaded;
    }
    {
      observer::Span span(observer::Phase::kPass, device, "compile StableHLO");
      loaded = client_->compile(device, mlir);
    }
    keep(key, loaded);
    return loaded;
  }

  const ClientRef client_;
  std::vector<std::string> fingerprints_; // by device
  std::deque<MemoryCount> counts_; // by device: buffers refer to them
  ObjectCache cache_;
};

} // namespace
} // namespace pjrt

Engine* open_pjrt_engine(const std::string& device, const PluginFile& plugin) {
  try {
    return new pjrt::PjrtEngine(pjrt::Client::create(pjrt::Plugin::load(plugin.path), plugin.options));
  } catch (const UserError& error) {
    throw UserError(error.kind(), str("PJRT_DEVICE=", device, ": ", error.what()));
  }
}

} // namespace torch_xla
