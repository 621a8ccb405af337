// Results that a program keeps for later runs: weights in another dtype or order. A result is kept when two runs in a row read the same
// operand.
#include <algorithm>
#include <utility>

#include "core/metrics.h"
#include "engine/cpu/program/cpu_executable.h"

namespace torch_xla::cpu {
namespace {

void add_taken() {
  static metrics::Counter taken("KeptResult");
  taken.add();
}

// Null if it fails, as for lack of memory: the call works without it too, and the run may be past the last step that may fail.
PackedRef try_pack(const LibraryCall& call, void* operand) {
  try {
    return call.pack(operand);
  } catch (const UserError&) {
    return nullptr;
  }
}

} // namespace

// The buffer in the memory, if its contents never change: an input, or a result kept of one.
CpuBuffer* CpuExecutable::constant_in(int32_t memory, const RunArgs& args) const {
  const Memory& m = plan_.memory.memories[memory];
  if (m.home != Memory::Home::kParameter) {
    return kept_[memory].get();
  }
  CpuBuffer& input = cpu_buffer(args.inputs[m.parameter]);
  return input.is_constant() ? &input : nullptr;
}

// Key of the kernel's code and of the buffers that it reads.
Hash128 CpuExecutable::key_of_results(const KernelStep& step, const RunArgs& args) const {
  Hash128 key = step.code;
  key.add(static_cast<uint64_t>(step.units));
  std::for_each(step.arguments.begin(), step.arguments.end(), [&key](uint64_t argument) { key.add(argument); });
  for (const MemoryRef& ref : step.buffers) {
    const Memory& memory = plan_.memory.memories[ref.memory];
    key.add(static_cast<uint64_t>(ref.byte_offset));
    key.add(memory.kept ? 0 : cpu_buffer(args.inputs[memory.parameter]).number());
  }
  return key;
}

void CpuExecutable::keep_results(const KernelStep& step, const Hash128& key, CpuBuffer& owner) {
  auto results = std::make_shared<std::vector<CpuBufferRef>>();
  int64_t bytes = 0;
  for (const MemoryRef& ref : step.buffers) {
    const Memory& memory = plan_.memory.memories[ref.memory];
    if (memory.kept) {
      kept_[ref.memory] = std::make_shared<CpuBuffer>(Type{DType::U8, {memory.bytes}}, Dims{1}, device_, blocks_[ref.memory]);
      results->push_back(kept_[ref.memory]);
      bytes += memory.bytes;
    }
  }
  if (owner.kept_results().has_room(bytes)) {
    owner.kept_results().add(key, std::move(results), bytes);
  }
}

void CpuExecutable::take_kept(const KernelStep& step, const std::vector<CpuBufferRef>& results) {
  auto next = results.begin();
  for (const MemoryRef& ref : step.buffers) {
    if (plan_.memory.memories[ref.memory].kept) {
      kept_[ref.memory] = *next++;
      blocks_[ref.memory] = kept_[ref.memory]->block();
      base_[ref.memory] = static_cast<char*>(blocks_[ref.memory]->data());
    }
  }
  add_taken();
}

void CpuExecutable::run_keeping(int32_t index, const RunArgs& args) {
  const KernelStep& step = plan_.kernels[index];
  CpuBuffer* owner = nullptr; // the last that it reads; null if one of them may change
  for (const MemoryRef& ref : step.buffers) {
    if (!plan_.memory.memories[ref.memory].kept && !(owner = constant_in(ref.memory, args))) {
      break;
    }
  }
  const Hash128 key = key_of_results(step, args);
  if (auto results = owner ? owner->kept_results().find<std::vector<CpuBufferRef>>(key) : nullptr) {
    take_kept(step, *results);
    return;
  }
  run_kernel(kernels_[index], step, args);
  if (std::exchange(last_results_[index], key) == key && owner) {
    keep_results(step, key, *owner);
  }
}

// The packed form of the call's operand, if it exists or if the operand was the same in the last run; else null.
PackedRef CpuExecutable::find_packed(int32_t index, const RunArgs& args) {
  const LibraryCall& call = *calls_[index];
  if (call.packable() < 0) {
    return nullptr;
  }
  const MemoryRef& ref = plan_.calls[index].operands[call.packable()];
  CpuBuffer* owner = ref.moved_by < 0 ? constant_in(ref.memory, args) : nullptr;
  if (!owner) {
    return nullptr;
  }
  Hash128 key = call.packing();
  key.add(static_cast<uint64_t>(ref.byte_offset));
  key.add(owner->number());
  PackedRef packed = owner->kept_results().find<at::Tensor>(key);
  if (packed) {
    add_taken();
  } else if (std::exchange(last_packs_[index], key) == key && owner->kept_results().has_room(call.packed_bytes())) {
    packed = try_pack(call, address(ref));
    if (packed) {
      owner->kept_results().add(key, packed, call.packed_bytes());
    }
  }
  return packed;
}

} // namespace torch_xla::cpu
