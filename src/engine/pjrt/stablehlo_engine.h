// What the engines over PJRT plugins have in common: programs are StableHLO, in the plugin's form.
#pragma once

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

 protected:
  virtual const std::string& platform() const = 0; // "cpu", "cuda", "tpu": the plugin's name of it
  std::string write_program(const Graph& graph, const Signature& signature, const CompileOptions& options) const;
};

} // namespace torch_xla::pjrt
