// The engine: buffers, and programs through StableHLO, kept on disk if the plugin can serialize them.
#include "engine/pjrt/pjrt_engine.h"

#include <string_view>

#include "core/env.h"
#include "core/observer.h"
#include "engine/pjrt/stablehlo_engine.h"
#include "engine/plain_files.h"
#include "ir/archive.h"

namespace torch_xla {
namespace pjrt {
namespace {

class PjrtEngine final : public StablehloEngine {
 public:
  explicit PjrtEngine(ClientRef client) : client_(std::move(client)) {
    for (int device = 0; device < client_->num_devices(); ++device) {
      counts_.emplace_back(device);
      fingerprints_.push_back(client_->fingerprint(device));
    }
    read_partitions();
  }

  int num_devices() const override {
    return client_->num_devices();
  }

  std::shared_ptr<Executable> compile(Graph graph, const CompileOptions& options) override {
    const int partitions = partitions_on(options.device);
    Signature signature(graph, options.donated, partitions);
    std::string mlir = write_program(graph, signature, options);
    LoadedExecutableHandle loaded = compile_text(options, signature.order, mlir);
    if (partitions > 1 && !choose_output_shardings(loaded, signature)) {
      mlir = write_program(graph, signature, options);
      loaded = compile_text(options, signature.order, mlir);
    }
    if (options.stored) {
      *options.stored = store(loaded, signature);
    }
    return std::make_shared<PjrtExecutable>(
        std::move(loaded), std::move(signature), options.keep_text ? std::move(mlir) : std::string(), counts_, options.device);
  }

  // The aliases depend on the donated parameters.
  std::string settings(const CompileOptions& options) const override {
    Writer out;
    out(fingerprints_[options.device], client_->compile_options(options.device, {0}, options.custom));
    out(partitions_on(options.device), options.donated, plain_files_.is_on());
    return out.take();
  }

  std::shared_ptr<Executable> restore(std::string_view stored, const CompileOptions& options) override {
    Signature signature;
    std::string program;
    Hash128 file;
    Reader in(stored);
    in(signature, program, file);
    in.finish();
    if (program.empty()) {
      program = plain_files_.find(file).value_or(std::string());
    }
    if (program.empty()) { // the file has been deleted
      return nullptr;
    }
    try {
      return std::make_shared<PjrtExecutable>(client_->load(program), std::move(signature), std::string(), counts_, options.device);
    } catch (const UserError& error) {
      explain_miss("a program on disk is compiled again", error);
      return nullptr;
    }
  }

  void set_cache_directory(const std::string& path, bool read_only) override {
    plain_files_.set_directory(env::has_plain_executables() ? path : std::string(), read_only);
  }

  EngineBufferRef upload(int device, const Type& type, const Dims& strides, const void* data) override {
    if (partitions_on(device) == 1) {
      return on_one_device(device, type, client_->upload(device, type, strides, data));
    }
    auto copy = std::make_shared<std::vector<char>>(static_cast<const char*>(data), static_cast<const char*>(data) + type.nbytes());
    return on_host(type, strides, copy->data(), [copy] {});
  }

  EngineBufferRef adopt(int device, const Type& type, const Dims& strides, void* data, std::function<void()> release) override {
    if (partitions_on(device) > 1) {
      return on_host(type, strides, data, std::move(release));
    }
    if (strides.empty()) {
      return on_one_device(device, type, client_->adopt(device, type, data, std::move(release)));
    }
    EngineBufferRef buffer = upload(device, type, strides, data);
    release();
    return buffer;
  }

  void download(const EngineBuffer& buffer, void* data) override {
    static_cast<const PjrtBuffer&>(buffer).download(*client_, data);
  }

  EngineBufferRef place(const EngineBuffer& buffer, ShardingRef sharding) override {
    return static_cast<const PjrtBuffer&>(buffer).place(*client_, std::move(sharding));
  }

  EngineMemoryInfo memory_info(int device) const override {
    EngineMemoryInfo info;
    return client_->read_memory(device, info) ? info : counts_[device].info();
  }

  void reset_peak_memory(int device) override {
    counts_[device].reset_peak();
  }

  NamedValues attributes(int device) const override {
    NamedValues values = client_->device_attributes(device);
    values["kind"] = client_->device_kind(device);
    values["platform_version"] = client_->platform_version();
    return values;
  }

 private:
  const std::string& platform() const override {
    return client_->platform_name();
  }

  EngineBufferRef on_one_device(int device, const Type& type, BufferHandle handle) {
    return std::make_shared<PjrtBuffer>(type, one_tile(std::move(handle)), counts_, device);
  }

  EngineBufferRef on_host(const Type& type, const Dims& strides, const void* data, std::function<void()> release) {
    return std::make_shared<PjrtBuffer>(type, std::make_unique<HostMemory>(data, strides, std::move(release)), counts_);
  }

  LoadedExecutableHandle compile_text(const CompileOptions& options, const Dims& order, const std::string& mlir) const {
    observer::Span span(observer::Phase::kPass, options.device, "compile StableHLO");
    return client_->compile(options.device, order, mlir, options.custom);
  }

  bool choose_output_shardings(const LoadedExecutableHandle& loaded, Signature& signature) const {
    const auto [program, format] = client_->plugin().optimized_program(client_->executable_of(loaded).get());
    return signature.choose_output_shardings(program, format);
  }

  // Empty if the plugin lacks the function. Many have it and fail.
  std::string store(const LoadedExecutableHandle& loaded, const Signature& signature) {
    try {
      std::string program = client_->serialize(loaded);
      if (program.empty()) {
        return program;
      }
      std::optional<Hash128> file = plain_files_.put(program);
      Writer out;
      out(signature, file ? std::string() : program, file.value_or(Hash128()));
      return out.take();
    } catch (const UserError& error) {
      explain_miss("a program is not kept on disk", error);
      return {};
    }
  }

  static void explain_miss(const char* what, const UserError& error) {
    if (env::debug_level() >= 1) {
      env::debug_print("cache", str(what, ": ", error.what()));
    }
  }

  const ClientRef client_;
  std::vector<std::string> fingerprints_; // by device
  MemoryCounts counts_;
  PlainFiles plain_files_; // where the user wants them: the serialized executables, which the store then only names
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
