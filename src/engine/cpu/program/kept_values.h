// What a program keeps for its next runs: weights in another dtype or order (docs/decisions/memory.md).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/cpu/program/run_memory.h"

namespace torch_xla::cpu {

// By memory: whether it is read only by calls that can take it packed. `calls`: the plan's, none for loops.
std::vector<bool> find_read_packed(const Plan& plan, const std::vector<std::optional<LibraryCall>>& calls);

// For one run at a time.
class KeptValues {
 public:
  // The plan and the memory outlive it.
  KeptValues(const Plan& plan, RunMemory& memory, int device);
  // The results of the kernel, by compute() where they are not kept.
  void run(int32_t kernel, const RunArgs& args, const std::function<void()>& compute);
  // The operands of the call that can be packed, if they are so or were the same in the last run; else null. `operands`: addresses.
  PackedRef find_packed(int32_t index, const LibraryCall& call, std::span<void* const> operands, const RunArgs& args);
  void end();

 private:
  CpuBuffer* constant_in(int32_t memory, const RunArgs& args) const;
  Hash128 key_of_results(const KernelStep& step, const RunArgs& args) const;
  void keep_results(const KernelStep& step, const Hash128& key, CpuBuffer& owner);
  void take(const KernelStep& step, const std::vector<CpuBufferRef>& results);
  void put_away(const LibraryCall& call, const MemoryRef& ref, const PackedRef& packed, CpuBuffer& owner);
  std::optional<Hash128> key_of_packed(int32_t index, const LibraryCall& call, const RunArgs& args) const;
  PackedRef pack(int32_t index, const LibraryCall& call, std::span<void* const> operands, const Hash128& key, CpuBuffer& owner);

  const Plan& plan_;
  RunMemory& memory_;
  const int device_;
  std::vector<CpuBufferRef> kept_; // by memory: what lies there as a buffer, where it is kept
  std::vector<Hash128> last_results_; // by kernel whose results can be kept: the key of the last run's
  std::vector<Hash128> last_packs_; // by call whose operand can be packed: the key of the last run's
  bool trims_ = false; // the run has put weights away
};

} // namespace torch_xla::cpu
