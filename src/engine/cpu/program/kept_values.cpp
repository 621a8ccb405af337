// Keys of what is made, by the buffers that it is made of. What the last run read too is made once more and then kept.
#include "engine/cpu/program/kept_values.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <utility>

#include "core/metrics.h"

namespace torch_xla::cpu {
namespace {

void add_taken() {
  static metrics::Counter taken("KeptResult");
  taken.add();
}

// Calls beside each other, or started before others, take no packed operands.
std::vector<bool> find_alone(const Plan& plan) {
  std::vector<bool> alone(plan.calls.size(), true);
  int32_t beside = 0; // of the steps from here on
  for (const StepRef& step : plan.steps) {
    beside = std::max(beside - 1, step.beside > 0 ? step.beside + 1 : 0);
    if (step.kind == StepKind::kStart || (step.kind == StepKind::kLibrary && beside > 0)) {
      alone[step.index] = false;
    }
  }
  return alone;
}

} // namespace

std::vector<bool> find_read_packed(const Plan& plan, const std::vector<std::optional<LibraryCall>>& calls) {
  std::vector<bool> read_packed(plan.memory.memories.size(), true);
  auto note = [&](const MemoryRef& ref) {
    if (ref.memory >= 0) {
      read_packed[ref.memory] = false;
    }
  };
  for (const KernelStep& kernel : plan.kernels) {
    auto is_read = [&](const MemoryRef& ref) { return !kernel.keeps || !plan.memory.memories[ref.memory].kept; };
    std::ranges::for_each(kernel.buffers | std::views::filter(is_read), note);
  }
  for (const UpdateStep& update : plan.updates) {
    std::ranges::for_each(std::array{update.base, update.result, update.update, update.view}, note);
  }
  const std::vector<bool> alone = find_alone(plan);
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    const bool is_packed = alone[i] && calls[i] && calls[i]->reads_only_packed();
    for (size_t k = 0; k < plan.calls[i].operands.size(); ++k) {
      const MemoryRef& operand = plan.calls[i].operands[k];
      if (!is_packed || static_cast<int32_t>(k) != calls[i]->packable().begin || operand.moved_by >= 0) {
        note(operand);
      }
    }
  }
  return read_packed;
}

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

// What is packed needs no memory as it was, where no other step reads it so and no other buffer has it.
void KeptValues::put_away(const LibraryCall& call, const MemoryRef& ref, const PackedRef& packed, CpuBuffer& owner) {
  const bool is_kept = kept_[ref.memory] != nullptr; // the run has it too
  if (!memory_.is_read_packed(ref.memory) || !(is_kept || owner.sole_owner())) {
    return;
  }
  if (PartsAway::Fill unpack = call.find_unpack(packed, memory_.address(ref))) {
    owner.put_away(memory_.address(ref), static_cast<size_t>(call.packed_bytes()), std::move(unpack));
    trims_ = true;
  }
}

// Of the packed form and of the very buffers that it is made of; none if one of them may change.
std::optional<Hash128> KeptValues::key_of_packed(int32_t index, const LibraryCall& call, const RunArgs& args) const {
  Hash128 key = call.packing();
  const OperandRange range = call.packable();
  for (int32_t i = range.begin; i < range.end; ++i) {
    const MemoryRef& ref = plan_.calls[index].operands[i];
    if (ref.memory < 0) { // None
      continue;
    }
    CpuBuffer* buffer = ref.moved_by < 0 ? constant_in(ref.memory, args) : nullptr;
    if (!buffer) {
      return std::nullopt;
    }
    key.add(static_cast<uint64_t>(ref.byte_offset));
    key.add(buffer->number());
  }
  return key;
}

PackedRef KeptValues::find_packed(int32_t index, const LibraryCall& call, std::span<void* const> operands, const RunArgs& args) {
  const OperandRange range = call.packable();
  CpuBuffer* weight = range.begin < range.end ? constant_in(plan_.calls[index].operands[range.begin].memory, args) : nullptr;
  if (!weight) {
    return nullptr;
  }
  const std::optional<Hash128> key = key_of_packed(index, call, args);
  if (PackedRef packed = key ? weight->kept_results().find<Packed>(*key) : nullptr) {
    add_taken();
    return packed;
  }
  weight->block()->data(); // another packed form may be all that is left of it
  const bool packs = key && std::exchange(last_packs_[index], *key) == *key && weight->kept_results().has_room(call.packed_bytes());
  return packs ? pack(index, call, operands, *key, *weight) : nullptr;
}

// Null if it fails, as for lack of memory: the call works without it too, and the run may be past the last step that may fail.
PackedRef KeptValues::pack(int32_t index, const LibraryCall& call, std::span<void* const> operands, const Hash128& key, CpuBuffer& owner) {
  try {
    PackedRef packed = call.pack(operands);
    owner.kept_results().add(key, packed, call.packed_bytes());
    put_away(call, plan_.calls[index].operands[call.packable().begin], packed, owner);
    return packed;
  } catch (const UserError&) {
    return nullptr;
  }
}

void KeptValues::end() {
  kept_.assign(kept_.size(), nullptr);
  if (std::exchange(trims_, false)) {
    malloc_trim(0); // packing and the compile before it leave holes as large as weights
  }
}

} // namespace torch_xla::cpu
