// A program of a PJRT plugin.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/pjrt/buffer.h"
#include "engine/pjrt/output_shardings.h"
#include "ir/archive.h"

namespace torch_xla::pjrt {

// For each parameter the output that takes its memory, or -1. A donated parameter goes to an output of its type and sharding that is
// computed from it through values of its dims (a weight and its update). An output of open sharding takes that of a parameter that is cut.
std::vector<int32_t> choose_aliases(const Graph& graph, const std::vector<bool>& donated, WantedShardings& wanted);

// The facts of the compiled graph that a run needs.
struct Signature {
  Signature() = default;
  // `donated`: by parameter, whether an output may take its memory; empty: none.
  Signature(const Graph& graph, const std::vector<bool>& donated, int num_partitions);
  // Sets output_shardings to those of the optimized program, which is in one of PJRT's formats. False if it does not tell them: then they
  // are set to those wanted, or whole, and the program is to be compiled again, with these wanted.
  bool choose_output_shardings(std::string_view program, std::string_view format);

  std::vector<DType> scalars;
  std::vector<Type> outputs;
  std::vector<int32_t> aliases; // by parameter
  Dims order; // by partition its device, counted from the first one
  std::vector<ShardingRef> parameter_shardings;
  std::vector<ShardingRef> output_shardings; // set once the program is compiled
  WantedShardings wanted; // for its compile
};

template <typename Archive>
void fields(Archive& archive, Signature& signature) {
  archive(signature.scalars, signature.outputs, signature.aliases, signature.order);
  archive(signature.parameter_shardings, signature.output_shardings);
}

class PjrtExecutable final : public Executable {
 public:
  // A program of the device, or with a partition on each one from it on. The counts outlive it. Throws UserError if the program's outputs
  // are not the graph's.
  PjrtExecutable(LoadedExecutableHandle loaded, Signature signature, std::string mlir, MemoryCounts& counts, int device);
  void run(RunArgs& args) override {
    start(args)();
  }
  bool is_asynchronous() const override {
    return true;
  }
  std::function<void()> start(RunArgs& args) override;
  int64_t scratch_bytes() const override {
    return scratch_bytes_;
  }
  int64_t code_bytes() const override {
    return code_bytes_;
  }
  std::string text() const override {
    return mlir_;
  }
  ShardingRef output_sharding(size_t i) const override {
    return signature_.output_shardings[i];
  }

 private:
  // A number of the last run and its 0-d buffers: most numbers are the same in all runs.
  struct Scalar {
    uint64_t bits = 0;
    Tiles buffers; // by partition
  };

  const Client& client() const {
    return *loaded_.client();
  }
  void check_outputs(const ExecutableHandle& executable) const;
  void read_scratch(const ExecutableHandle& executable);
  void collect_arguments(const RunArgs& args);
  void add_argument(const Tiles& tiles);
  const Tiles& scalar_buffers(size_t i, uint64_t bits);
  // Drops inputs that a failed start has donated nevertheless.
  void drop_deleted(RunArgs& args) const;
  // Fills `results`, by output. The events, by partition, come when the devices have computed them; null if the plugin gives none.
  std::vector<c::Event*> execute(std::vector<Tiles>& results);

  LoadedExecutableHandle loaded_;
  const Signature signature_;
  const std::string mlir_;
  MemoryCounts& counts_;
  const int device_;
  int64_t scratch_bytes_ = 0;
  int64_t code_bytes_ = -1;
  std::mutex mutex_; // one start at a time; guards all below
  std::vector<Scalar> scalars_;
  std::vector<std::vector<c::Buffer*>> arguments_; // by partition
  std::vector<int64_t> kept_; // aliased parameters that this run must not donate
};

} // namespace torch_xla::pjrt
