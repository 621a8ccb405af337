// Lookup of programs by key and output set.
#include "program/program_cache.h"

namespace torch_xla {

std::vector<ValueId> list_values(const ValueBits& bits) {
  std::vector<ValueId> values;
  for (size_t word = 0; word < bits.size(); ++word) {
    for (uint64_t rest = bits[word]; rest; rest &= rest - 1) {
      values.push_back(static_cast<ValueId>(word * 64 + static_cast<size_t>(__builtin_ctzll(rest))));
    }
  }
  return values;
}

ProgramCache::Entries& ProgramCache::entries(const Hash128& key) {
  auto found = index_.find(key);
  if (found != index_.end()) {
    items_.splice(items_.begin(), items_, found->second);
    return items_.front().second;
  }
  items_.emplace_front(key, Entries());
  index_[key] = items_.begin();
  if (items_.size() > capacity_) {
    index_.erase(items_.back().first);
    items_.pop_back();
  }
  return items_.front().second;
}

void ProgramCache::clear() {
  index_.clear();
  items_.clear();
  interpreted_.clear();
}

ProgramEntry& ProgramCache::entry(const Hash128& key, const std::vector<int64_t>& offsets) {
  constexpr size_t kMostOfKey = 8; // the first one and the latest widened ones
  Entries& entries = this->entries(key);
  for (ProgramEntry& entry : entries) {
    if (entry.offsets.matches(offsets)) {
      return entry;
    }
  }
  OffsetPattern pattern = entries.empty() ? OffsetPattern(offsets) : entries.back().offsets.widened(offsets);
  entries.push_back({std::move(pattern), {}, {}});
  if (entries.size() > kMostOfKey) {
    entries.pop_front();
  }
  return entries.back();
}

void ProgramCache::make_room_for_interpreted(const Hash128& key) {
  constexpr size_t kMostInterpreted = 256;
  interpreted_.push_back(key);
  if (interpreted_.size() <= kMostInterpreted) {
    return;
  }
  auto oldest = index_.find(interpreted_.front());
  interpreted_.pop_front();
  if (oldest == index_.end()) {
    return;
  }
  for (ProgramEntry& entry : oldest->second->second) {
    std::erase_if(entry.programs, [](const Program& program) { return program.executable->is_interpreted(); });
  }
}

bool has_outputs(const Program& program, const ValueBits& wanted) {
  uint64_t missing = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    missing |= wanted[i] & ~program.output_bits[i];
  }
  return !missing;
}

Program* find_program(ProgramEntry& entry, const ValueBits& wanted, const std::vector<uint64_t>& numbers) {
  for (Program& program : entry.programs) {
    if (has_outputs(program, wanted) && program.groups.hold(numbers)) {
      return &program;
    }
  }
  return nullptr;
}

} // namespace torch_xla
