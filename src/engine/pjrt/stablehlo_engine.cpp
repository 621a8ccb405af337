// Lowering, and the text of programs.
#include "engine/pjrt/stablehlo_engine.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "core/env.h"
#include "core/observer.h"
#include "passes/passes.h"
#include "stablehlo/writer.h"

namespace torch_xla::pjrt {

Graph StablehloEngine::lower(const Graph& trace, int device) const {
  return run_passes(trace, device, stablehlo_rules(hardware()));
}

// Hosts and GPUs multiply in float32 until the user allows less, as PyTorch does on them. Others have their own default: TPUs multiply
// bfloat16.
PrecisionRules StablehloEngine::precision_rules() const {
  constexpr std::string_view kLikePyTorch[] = {"cpu", "host", "Host", "cuda", "rocm", "sycl"};
  const bool like_pytorch = std::ranges::find(kLikePyTorch, platform()) != std::end(kLikePyTorch);
  return {like_pytorch ? Precision::kHighest : Precision::kDefault, platform() == "cuda"};
}

// A plugin's compiler plans memory and work for the whole step. What the trace holds is the device's memory, which the host does not count.
TraceLimits StablehloEngine::trace_limits() const {
  return {.nodes = 1 << 15, .held_bytes = int64_t{64} << 30};
}

StableHloTarget StablehloEngine::stablehlo_target() const {
  return find_stablehlo_target(platform());
}

std::string StablehloEngine::hardware() const {
  std::string name = platform();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

void StablehloEngine::read_partitions() {
  if (env::flag(env::variable("XLA_USE_SPMD"))) {
    run_over_all_devices();
  }
}

int StablehloEngine::partitions_on(int device) const {
  const int partitions = partitions_;
  XLA_CHECK(
      partitions == 1 || device == 0,
      "xla:",
      device,
      " is one of the devices over which programs of xla:0 run (torch_xla.runtime.use_spmd()): put the tensor on xla:0");
  return partitions;
}

std::string StablehloEngine::write_program(const Graph& graph, const Signature& signature, const CompileOptions& options) const {
  observer::Span span(observer::Phase::kPass, options.device, "write StableHLO");
  std::string mlir = write_stablehlo(
      graph,
      {.aliases = signature.aliases,
       .products = options.precision.products,
       .convolutions = options.precision.convolutions,
       .target = stablehlo_target(),
       .location = options.location,
       .device_order = signature.order,
       .output_shardings = signature.wanted});
  if (env::debug_level() >= 3) {
    env::debug_print("StableHLO", mlir);
  }
  return mlir;
}

} // namespace torch_xla::pjrt
