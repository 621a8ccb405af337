// What the engines over PJRT plugins have in common: programs are StableHLO, in the plugin's form.
#pragma once

#include <atomic>
#include <string>

#include "engine/engine.h"
#include "engine/pjrt/executable.h"

namespace torch_xla::pjrt {

class StablehloEngine : public Engine {
 public:
  Graph lower(const Graph& trace, int device) const final;
  bool runs_library_calls() const final {
    return false;
  }
  bool shares_numbers() const final {
    return true;
  }
  bool takes_custom_options() const final {
    return true;
  }
  TraceLimits trace_limits() const final;
  PrecisionRules precision_rules() const final;
  StableHloTarget stablehlo_target() const final;
  // The platform in capitals.
  std::string hardware() const final;
  int num_partitions() const final {
    return partitions_;
  }
  void run_over_all_devices() final {
    partitions_ = num_devices();
  }

 protected:
  // Lets programs run over all devices if the environment says so (XLA_USE_SPMD). Called once the devices are known.
  void read_partitions();
  // The number of partitions of the device's programs. Throws UserError for a device that is a partition of another one's.
  int partitions_on(int device) const;
  virtual const std::string& platform() const = 0; // "cpu", "cuda", "tpu": the plugin's name of it
  std::string write_program(const Graph& graph, const Signature& signature, const CompileOptions& options) const;

 private:
  std::atomic<int> partitions_{1};
};

} // namespace torch_xla::pjrt
