// Keys of what is made, by the buffers that it is made of. What the last run read too is made once more and then kept.
#include "engine/cpu/program/kept_values.h"

#include <algorithm>
#include <utility>

#include "core/metrics.h"

namespace torch_xla::cpu {
namespace {

void add_taken() {
  static metrics::Counter taken("KeptResult");
  taken.add();
}

// Null if it fails, as for lack of memory: the call works without it too, and the run may be past the last step that may fail.
PackedRef try_pack(const LibraryCall& call, std::span<void* const> operands) {
  try {
    return call.pack(operands);
  } catch (const UserError&) {
    return nullptr;
  }
}

} // namespace

KeptValues::KeptValues(const Plan& plan, RunMemory& memory, int device)
    : plan_(plan),
      memory_(memory),
      device_(device),
      kept_(plan.memory.memories.size()),
      last_results_(plan.kernels.size()),
      last_packs_(plan.calls.size()) {}

// The buffer that lies in the memory, if it holds the same for as long as it lives: an input, or what was kept of one.
CpuBuffer* KeptValues::constant_in(int32_t memory, const RunArgs& args) const {
  const Memory& m = plan_.memory.memories[memory];
  if (m.home != Memory::Home::kParameter) {
    return kept_[memory].get();
  }
  CpuBuffer& input = cpu_buffer(args.inputs[m.parameter]);
  return input.is_constant() ? &input : nullptr;
}

// Of what the kernel does, and of the very buffers that it reads.
Hash128 KeptValues::key_of_results(const KernelStep& step, const RunArgs& args) const {
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

void KeptValues::keep_results(const KernelStep& step, const Hash128& key, CpuBuffer& owner) {
  auto results = std::make_shared<std::vector<CpuBufferRef>>();
  int64_t bytes = 0;
  for (const MemoryRef& ref : step.buffers) {
    const Memory& memory = plan_.memory.memories[ref.memory];
    if (memory.kept) {
      kept_[ref.memory] = std::make_shared<CpuBuffer>(Type{DType::U8, {memory.bytes}}, Dims{1}, device_, memory_.block(ref.memory));
      results->push_back(kept_[ref.memory]);
      bytes += memory.bytes;
    }
  }
  if (owner.kept_results().has_room(bytes)) {
    owner.kept_results().add(key, std::move(results), bytes);
  }
}

void KeptValues::take(const KernelStep& step, const std::vector<CpuBufferRef>& results) {
  auto next = results.begin();
  for (const MemoryRef& ref : step.buffers) {
    if (plan_.memory.memories[ref.memory].kept) {
      kept_[ref.memory] = *next++;
      memory_.set_block(ref.memory, kept_[ref.memory]->block());
    }
  }
  add_taken();
}

void KeptValues::run(int32_t index, const RunArgs& args, const std::function<void()>& compute) {
  const KernelStep& step = plan_.kernels[index];
  CpuBuffer* owner = nullptr; // the last that it reads; null if one of them may change
  for (const MemoryRef& ref : step.buffers) {
    if (!plan_.memory.memories[ref.memory].kept && !(owner = constant_in(ref.memory, args))) {
      break;
    }
  }
  const Hash128 key = key_of_results(step, args);
  if (auto results = owner ? owner->kept_results().find<std::vector<CpuBufferRef>>(key) : nullptr) {
    take(step, *results);
    return;
  }
  compute();
  if (std::exchange(last_results_[index], key) == key && owner) {
    keep_results(step, key, *owner);
  }
}

PackedRef KeptValues::find_packed(int32_t index, const LibraryCall& call, std::span<void* const> operands, const RunArgs& args) {
  Hash128 key = call.packing();
  CpuBuffer* owner = nullptr; // the weight
  const OperandRange range = call.packable();
  for (int32_t i = range.begin; i < range.end; ++i) {
    const MemoryRef& ref = plan_.calls[index].operands[i];
    if (ref.memory < 0) { // None
      continue;
    }
    CpuBuffer* buffer = ref.moved_by < 0 ? constant_in(ref.memory, args) : nullptr;
    if (!buffer) {
      return nullptr;
    }
    owner = owner ? owner : buffer;
    key.add(static_cast<uint64_t>(ref.byte_offset));
    key.add(buffer->number());
  }
  if (!owner) {
    return nullptr;
  }
  PackedRef packed = owner->kept_results().find<Packed>(key);
  if (packed) {
    add_taken();
  } else if (std::exchange(last_packs_[index], key) == key && owner->kept_results().has_room(call.packed_bytes())) {
    packed = try_pack(call, operands);
    if (packed) {
      owner->kept_results().add(key, packed, call.packed_bytes());
    }
  }
  return packed;
}

void KeptValues::end() {
  kept_.assign(kept_.size(), nullptr);
}

} // namespace torch_xla::cpu
