// A program of a PJRT plugin.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/pjrt/buffer.h"

namespace torch_xla::pjrt {

// For each parameter the output that takes its memory, or -1. A donated parameter goes to an output of its type that is computed from it
// through values of its dims (a weight and its update).
std::vector<int32_t> choose_aliases(const Graph& graph, const std::vector<bool>& donated);

// The facts of the compiled graph that a run needs.
struct Signature {
  Signature() = default;
  Signature(const Graph& graph, std::vector<int32_t> aliases);

  uint64_t num_parameters = 0;
  std::vector<DType> scalars;
  std::vector<Type> outputs;
  std::vector<int32_t> aliases; // by parameter
};

template <typename Archive>
void fields(Archive& archive, Signature& signature) {
  archive(signature.num_parameters, signature.scalars, signature.outputs, signature.aliases);
}

class PjrtExecutable final : public Executable {
 public:
  // A program of the count's device; the count outlives it. Throws UserError if the program's outputs are not the graph's.
  PjrtExecutable(LoadedExecutableHandle loaded, Signature signature, std::string mlir, MemoryCount& count);
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

 private:
  // A number of the last run and its 0-d buffer: most numbers are the same in all runs.
  struct Scalar {
    uint64_t bits = 0;
    BufferHandle buffer;
  };

  const Client& client() const {
    return *loaded_.client();
  }
  void check_outputs(const ExecutableHandle& executable) const;
  void read_scratch(const ExecutableHandle& executable);
  void collect_arguments(const RunArgs& args);
  c::Buffer* scalar_buffer(size_t i, uint64_t bits);
  // Drops inputs that a failed start has donated nevertheless.
  void drop_deleted(RunArgs& args) const;
  // Fills `results`; the event comes when the device has computed them, null if the plugin gives none.
  c::Event* execute(std::vector<BufferHandle>& results);

  LoadedExecutableHandle loaded_;
  const Signature signature_;
  const std::string mlir_;
  MemoryCount& count_;
  int64_t scratch_bytes_ = 0;
  int64_t code_bytes_ = -1;
  std::mutex mutex_; // one start at a time; guards all below
  std::vector<Scalar> scalars_;
  std::vector<c::Buffer*> arguments_;
  std::vector<int64_t> kept_; // aliased parameters that this run must not donate
};

} // namespace torch_xla::pjrt
