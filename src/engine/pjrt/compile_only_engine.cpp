// The engine of compile-only devices: buffers are shapes without memory, programs are compiled and never run.
#include "engine/pjrt/compile_only_engine.h"

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "core/metrics.h"
#include "core/observer.h"
#include "engine/pjrt/compile_options.h"
#include "engine/pjrt/compile_process.h"
#include "engine/pjrt/stablehlo_engine.h"
#include "ir/archive.h"

namespace torch_xla {

template <typename Archive>
void fields(Archive& archive, ProgramReport& report) {
  archive(report.line, report.operations, report.code_bytes, report.argument_bytes, report.output_bytes, report.aliased_bytes);
  archive(report.scratch_bytes, report.peak_bytes, report.costs, report.format, report.optimized);
}

namespace pjrt {
namespace {

class ShapeBuffer final : public EngineBuffer {
 public:
  // On so many devices from the given one on; 0: in the host's memory until a program reads it. The counts outlive it.
  ShapeBuffer(const Type& type, MemoryCounts& counts, int device, int num_devices, ShardingRef sharding = nullptr)
      : EngineBuffer(type, contiguous_strides(type.dims), device, std::move(sharding)), counts_(counts) {
    place(num_devices);
  }
  ~ShapeBuffer() override {
    count_tiles(0, num_devices_, -1);
  }
  bool is_placed() const override {
    return num_devices_ > 0;
  }
  // Puts the value on so many devices, at least those that have it.
  void place(int num_devices) {
    count_tiles(num_devices_.exchange(num_devices), num_devices, 1);
  }
  void* host_pointer() const override {
    return nullptr;
  }
  bool sole_owner() const override {
    return true;
  }

 private:
  void count_tiles(int from, int to, int64_t sign) {
    const Dims dims = sharding() ? sharding()->tile_dims(type().dims) : type().dims;
    for (int i = from; i < to; ++i) {
      counts_[static_cast<size_t>(device() + i)].add(this, sign * Type{type().dtype, dims}.nbytes());
    }
  }

  MemoryCounts& counts_;
  std::atomic<int> num_devices_{0};
};

class CompiledProgram final : public Executable {
 public:
  // The counts outlive it.
  CompiledProgram(ProgramReportRef report, Signature signature, std::string mlir, MemoryCounts& counts)
      : report_(std::move(report)), signature_(std::move(signature)), mlir_(std::move(mlir)), counts_(counts) {}
  void run(RunArgs& args) override {
    for (const EngineBufferRef& input : args.inputs) {
      static_cast<ShapeBuffer&>(*input).place(report_->num_devices);
    }
    args.inputs.clear();
    args.outputs.clear();
    for (size_t i = 0; i < signature_.outputs.size(); ++i) {
      args.outputs.push_back(std::make_shared<ShapeBuffer>(
          signature_.outputs[i], counts_, report_->device, report_->num_devices, signature_.output_shardings[i]));
    }
  }
  ShardingRef output_sharding(size_t i) const override {
    return signature_.output_shardings[i];
  }
  int64_t scratch_bytes() const override {
    return std::max<int64_t>(report_->scratch_bytes, 0);
  }
  int64_t code_bytes() const override {
    return report_->code_bytes;
  }
  std::string text() const override {
    return mlir_;
  }

 private:
  const ProgramReportRef report_;
  const Signature signature_;
  const std::string mlir_;
  MemoryCounts& counts_;
};

// The user's line of the last operation that has one.
std::string last_line(const Graph& graph, const CompileOptions& options) {
  for (auto node = graph.nodes.rbegin(); options.location && node != graph.nodes.rend(); ++node) {
    if (std::string line = options.location(node->location); !line.empty()) {
      return line;
    }
  }
  return "";
}

class CompileOnlyEngine final : public StablehloEngine {
 public:
  explicit CompileOnlyEngine(CompileTarget target) : process_(std::move(target)), opened_(process_.open()) {
    XLA_CHECK(!opened_.devices.empty(), process_.target().name, " has no device");
    opened_.devices.resize(std::min<size_t>(opened_.devices.size(), kMaxDevices));
    for (int device = 0; device < num_devices(); ++device) {
      counts_.emplace_back(device);
    }
    read_partitions();
  }

  int num_devices() const override {
    return static_cast<int>(opened_.devices.size());
  }

  std::string why_no_values() const override {
    return str(
        "programs are only compiled for ", process_.target().name, " and never run (XLA_COMPILE_ONLY): tensors have no values to read");
  }

  std::shared_ptr<Executable> compile(Graph graph, const CompileOptions& options) override {
    auto report = std::make_shared<ProgramReport>();
    report->device = options.device;
    report->num_devices = partitions_on(options.device);
    Signature signature(graph, options.donated, report->num_devices);
    std::string mlir = write_program(graph, signature, options);
    report->line = last_line(graph, options);
    report->operations = static_cast<int64_t>(graph.nodes.size());
    report->memory_bytes = memory_bytes(options.device);
    const int64_t start = metrics::now_ns();
    try {
      compile_text(mlir, signature, options, *report);
      if (report->num_devices > 1 && !signature.choose_output_shardings(report->optimized, report->format)) {
        mlir = write_program(graph, signature, options);
        compile_text(mlir, signature, options, *report);
      }
    } catch (const UserError& error) {
      report->compile_ns = metrics::now_ns() - start;
      report->error = error.what();
      add_program_report(report);
      throw UserError(error.kind(), str(error.what(), "\n", place_of(*report)));
    }
    report->compile_ns = metrics::now_ns() - start;
    if (options.stored) {
      Writer out;
      out(signature, *report);
      *options.stored = out.take();
    }
    return program(std::move(report), std::move(signature), options.keep_text ? std::move(mlir) : std::string());
  }

  std::string settings(const CompileOptions& options) const override {
    const CompileTarget& target = process_.target();
    Writer out;
    out(target.name, target.topology, target.options, options_of(options, {0}), options.donated, opened_.platform_version);
    out(opened_.api_version, xla_flags(), target.plugin, partitions_on(options.device));
    std::error_code ignored; // the path may be a name that the loader looks up
    out(std::filesystem::file_size(target.plugin, ignored));
    out(std::filesystem::last_write_time(target.plugin, ignored).time_since_epoch().count());
    return out.take();
  }

  std::shared_ptr<Executable> restore(std::string_view stored, const CompileOptions& options) override {
    Signature signature;
    auto report = std::make_shared<ProgramReport>();
    Reader in(stored);
    in(signature, *report);
    in.finish();
    report->device = options.device;
    report->num_devices = static_cast<int>(signature.order.size());
    report->memory_bytes = memory_bytes(options.device);
    return program(std::move(report), std::move(signature), {});
  }

  EngineBufferRef upload(int device, const Type& type, const Dims& /*strides*/, const void* /*data*/) override {
    return uninitialized(device, type);
  }

  EngineBufferRef adopt(int device, const Type& type, const Dims& /*strides*/, void* /*data*/, std::function<void()> release) override {
    release();
    return uninitialized(device, type);
  }

  EngineBufferRef uninitialized(int device, const Type& type) override {
    return std::make_shared<ShapeBuffer>(type, counts_, device, partitions_on(device) > 1 ? 0 : 1);
  }

  EngineBufferRef place(const EngineBuffer& buffer, ShardingRef sharding) override {
    return std::make_shared<ShapeBuffer>(buffer.type(), counts_, buffer.device(), num_partitions(), std::move(sharding));
  }

  void download(const EngineBuffer& /*buffer*/, void* /*data*/) override {
    throw UserError(ErrorKind::Runtime, why_no_values());
  }

  EngineMemoryInfo memory_info(int device) const override {
    EngineMemoryInfo info = counts_[device].info();
    info.bytes_limit = memory_bytes(device);
    return info;
  }

  void reset_peak_memory(int device) override {
    counts_[device].reset_peak();
  }

  NamedValues attributes(int device) const override {
    NamedValues values = opened_.devices[device].attributes;
    values["kind"] = opened_.devices[device].kind;
    values["platform_version"] = opened_.platform_version;
    values["compile_only"] = process_.target().name;
    return values;
  }

 private:
  const std::string& platform() const override {
    return opened_.platform;
  }

  // As the device's attributes say; 0 if they do not.
  int64_t memory_bytes(int device) const {
    for (const char* name : {"device_memory_bytes_limit", "dram_size_bytes"}) { // XLA's name, and Tenstorrent's
      const NamedValues& attributes = opened_.devices[device].attributes;
      auto found = attributes.find(name);
      if (found != attributes.end() && std::holds_alternative<int64_t>(found->second)) {
        return std::get<int64_t>(found->second);
      }
    }
    return 0;
  }

  // Of a program on these devices, which are counted from that of the options on.
  std::string options_of(const CompileOptions& options, const Dims& order) const {
    std::vector<int> ids;
    for (int64_t i : order) {
      ids.push_back(opened_.devices[static_cast<size_t>(options.device + i)].id);
    }
    return compile_options(opened_.platform, ids, options.custom);
  }

  void compile_text(const std::string& mlir, const Signature& signature, const CompileOptions& options, ProgramReport& report) {
    observer::Span span(observer::Phase::kPass, options.device, "compile StableHLO");
    CompileReply reply = process_.compile({mlir, options_of(options, signature.order)}, options.poll ? options.poll : [] {});
    XLA_CHECK(
        reply.num_outputs == signature.outputs.size(),
        "the PJRT plugin compiled a program of ",
        signature.outputs.size(),
        " outputs to one of ",
        reply.num_outputs);
    report.code_bytes = reply.code_bytes;
    report.argument_bytes = reply.argument_bytes;
    report.output_bytes = reply.output_bytes;
    report.aliased_bytes = reply.aliased_bytes;
    report.scratch_bytes = reply.scratch_bytes;
    report.peak_bytes = reply.peak_bytes;
    report.costs = std::move(reply.costs);
    report.format = std::move(reply.format);
    report.optimized = std::move(reply.optimized);
  }

  std::string place_of(const ProgramReport& report) const {
    std::string text = str("in a program for ", process_.target().name);
    return report.line.empty() ? text : str(text, " whose last operation is at ", report.line);
  }

  std::shared_ptr<Executable> program(std::shared_ptr<ProgramReport> report, Signature signature, std::string mlir) {
    add_program_report(report);
    return std::make_shared<CompiledProgram>(std::move(report), std::move(signature), std::move(mlir), counts_);
  }

  CompileProcess process_;
  OpenReply opened_;
  MemoryCounts counts_;
};

} // namespace
} // namespace pjrt

Engine* open_compile_only_engine(const std::string& device, CompileTarget target) {
  const std::string name = target.name;
  try {
    return new pjrt::CompileOnlyEngine(std::move(target));
  } catch (const UserError& error) {
    throw UserError(error.kind(), str("PJRT_DEVICE=", device, ", XLA_COMPILE_ONLY=", name, ": ", error.what()));
  }
}

} // namespace torch_xla
