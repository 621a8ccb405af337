// The embedded engine: memory from the devices' pools, programs from the compiler.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/env.h"
#include "core/threads.h"
#include "engine/cpu/host.h"
#include "engine/cpu/library/call.h"
#include "engine/cpu/library/half_products.h"
#include "engine/cpu/library/products.h"
#include "engine/cpu/library/quantized.h"
#include "engine/cpu/program/cpu_executable.h"
#include "engine/cpu/program/interpreted.h"
#include "engine/cpu/threads/team.h"
#include "engine/engine.h"
#include "engine/memory_count.h"
#include "passes/passes.h"

namespace torch_xla {
namespace cpu {
namespace {

// Stands on disk for a program that is interpreted.
constexpr std::string_view kInterpreted = "interpreted";

std::vector<Kernel> code_of(std::vector<CompiledKernel> compiled) {
  std::vector<Kernel> code;
  for (CompiledKernel& kernel : compiled) {
    code.push_back(std::move(kernel.code));
  }
  return code;
}

class CpuEngine final : public Engine {
 public:
  CpuEngine() {
    define_convolutions();
  }

  int num_devices() const override {
    return env::cpu_num_devices();
  }

  std::shared_ptr<Executable> interpret(const CompileOptions& options) override {
    std::shared_ptr<Executable> program = options.interpretable ? cpu::interpret(*options.interpretable, options) : nullptr;
    if (program && options.stored) {
      *options.stored = kInterpreted;
    }
    return program;
  }

  std::shared_ptr<Executable> run_in_order(const Graph& trace, int device) override {
    const FloatStorage storage = env::float_storage();
    return cpu::run_in_order(storage == FloatStorage::kFull ? trace : narrow(trace, storage, multiplies_bf16_fast()), device);
  }

  Graph lower(const Graph& trace, int device) const override {
    return run_passes(
        trace,
        device,
        {.widens = widens_products,
         .reads_integers = reads_integers,
         .convolves_integers = convolves_integers(),
         .narrow_products = multiplies_bf16_fast(),
         .fuses = env::fusion() ? find_fusion : nullptr});
  }

  bool runs_library_calls() const override {
    return true;
  }
  bool runs_lstm_layers(DType dtype) const override {
    return dtype == DType::F32 || (dtype == DType::BF16 && can_multiply_by_onednn());
  }

  bool orders_outputs() const override {
    return true;
  }
  bool moves_views() const override {
    return true;
  }
  bool shares_memory() const override {
    return true;
  }
  bool reuses_code() const override {
    return true;
  }

  std::shared_ptr<Executable> compile(Graph graph, const CompileOptions& options) override {
    Schedule schedule = make_schedule(graph, options.device, env::fusion());
    std::vector<CompiledKernel> compiled = compile_kernels(schedule, options.poll);
    std::vector<Loop> loops = compile_loops(schedule, options);
    Plan plan = make_plan(schedule, compiled);
    if (options.needs_new_code) {
      auto is_new = [](const CompiledKernel& kernel) { return kernel.code.is_new(); };
      *options.needs_new_code = !loops.empty() || std::any_of(compiled.begin(), compiled.end(), is_new);
    }
    if (options.stored && loops.empty()) { // bodies are not kept on disk
      *options.stored = write_plan(plan);
    }
    std::string text = options.keep_text ? schedule_text(schedule) : std::string();
    if (env::debug_level() >= 3) {
      env::debug_print("steps", text);
    }
    return std::make_shared<CpuExecutable>(
        std::move(plan), code_of(std::move(compiled)), std::move(loops), options.device, std::move(text));
  }

  std::string settings(const CompileOptions& /*options*/) const override {
    return str(kernel_host(), "\n", call_settings(), "\n", host().second_cache_bytes);
  }

  std::shared_ptr<Executable> restore(std::string_view stored, const CompileOptions& options) override {
    if (stored == kInterpreted) {
      return interpret(options);
    }
    Plan plan = read_plan(stored);
    auto find = [&](size_t i) { return find_kernel(plan.kernels[i].code); };
    std::vector<Kernel> kernels = make_kernels(plan.kernels.size(), find, options.poll);
    if (!std::all_of(kernels.begin(), kernels.end(), [](const Kernel& kernel) { return kernel.fn(); })) {
      return nullptr;
    }
    remember_numbers(numbers_of(plan));
    return std::make_shared<CpuExecutable>(std::move(plan), std::move(kernels), std::vector<Loop>(), options.device);
  }

  void learn(std::string_view stored) override {
    if (stored == kInterpreted) {
      return;
    }
    const Plan plan = read_plan(stored);
    suggest_numbers(numbers_of(plan));
  }

  void set_cache_directory(const std::string& path, bool read_only) override {
    set_kernel_cache_dir(path, read_only);
    set_host_cache_dir(path.empty() ? path : path + "/host", read_only);
  }

  EngineBufferRef upload(int device, const Type& type, const Dims& strides, const void* data) override {
    auto block = std::make_shared<Block>(Pool::get(device), static_cast<size_t>(type.nbytes()));
    if (type.nbytes() > 0) {
      std::memcpy(block->data(), data, static_cast<size_t>(type.nbytes()));
    }
    return make_buffer(device, type, strides, std::move(block));
  }

  EngineBufferRef adopt(int device, const Type& type, const Dims& strides, void* data, std::function<void()> release) override {
    auto block = std::make_shared<Block>(data, release ? std::move(release) : [] {});
    return make_buffer(device, type, strides, std::move(block));
  }

  void download(const EngineBuffer& buffer, void* data) override {
    if (buffer.type().nbytes() > 0) {
      std::memcpy(data, buffer.host_pointer(), static_cast<size_t>(buffer.type().nbytes()));
    }
  }

  std::string hardware() const override {
    return "CPU";
  }

  NamedValues attributes(int /*device*/) const override {
    return {{"kind", "cpu"}, {"num_cores", int64_t{sysconf(_SC_NPROCESSORS_ONLN)}}};
  }

  void leave_processors() override {
    end_team();
  }

  EngineMemoryInfo memory_info(int device) const override {
    const Pool& pool = Pool::get(device);
    return {pool.bytes_used(), host_memory(), pool.peak_bytes_used(), pool.bytes_reserved(), pool.peak_bytes_reserved()};
  }

  void empty_cache(int device) override {
    Pool::get(device).empty_cache();
  }

  void reset_peak_memory(int device) override {
    Pool::get(device).reset_peaks();
  }

 private:
  static std::vector<const KernelNumbers*> numbers_of(const Plan& plan) {
    std::vector<const KernelNumbers*> numbers;
    for (const KernelStep& step : plan.kernels) {
      if (!step.numbers.values.empty()) { // of a copy there are none
        numbers.push_back(&step.numbers);
      }
    }
    return numbers;
  }

  static EngineBufferRef make_buffer(int device, const Type& type, const Dims& strides, BlockRef block) {
    return std::make_shared<CpuBuffer>(type, strides.empty() ? contiguous_strides(type.dims) : strides, device, std::move(block));
  }
};

} // namespace
} // namespace cpu

Engine& cpu_engine() {
  static auto* engine = new cpu::CpuEngine;
  return *engine;
}

void watch_processors() {
  cpu::watch_processors();
}

} // namespace torch_xla
