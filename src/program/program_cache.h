// Program cache: a device's compiled programs by trace key, each with its set of output values.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/hash.h"
#include "core/inline_vec.h"
#include "engine/engine.h"
#include "program/number_groups.h"
#include "program/offset_pattern.h"

namespace torch_xla {

// One bit per value of a trace.
using ValueBits = InlineVec<uint64_t, 4>;
inline bool has_value(const ValueBits& bits, ValueId v) {
  return (bits[static_cast<size_t>(v) / 64] >> (v % 64)) & 1;
}
std::vector<ValueId> list_values(const ValueBits& bits); // ascending

struct Program {
  std::shared_ptr<Executable> executable;
  std::vector<ValueId> outputs; // ascending
  std::vector<Dims> output_strides; // as Graph's
  ValueBits output_bits;
  NumberGroups groups; // of the trace's numbers
  int64_t runs_left = 0; // of an interpreted program: runs left before its compile
};

// The programs of one trace, or of all traces that differ only in view offsets, and the union of all output sets requested.
struct ProgramEntry {
  OffsetPattern offsets;
  std::vector<Program> programs;
  ValueBits wanted;
};

// Drops the least recently used entries beyond the capacity. Guarded by the device's recording lock.
class ProgramCache {
 public:
  explicit ProgramCache(size_t capacity) : capacity_(capacity) {}
  // The entry of the key for these offsets. If none matches, a new one: the latest one, widened to any value of the differing offsets.
  ProgramEntry& entry(const Hash128& key, const std::vector<int64_t>& offsets);
  // Call it before adding an interpreted program of the key. Making one costs no more than finding it, so only some are kept: drops the
  // oldest.
  void make_room_for_interpreted(const Hash128& key);
  size_t size() const {
    return index_.size();
  }
  void clear();

 private:
  using Entries = std::list<ProgramEntry>; // the latest, with the most numbers, last
  using Item = std::pair<Hash128, Entries>;
  Entries& entries(const Hash128& key);

  const size_t capacity_;
  std::list<Item> items_; // most recent first
  std::unordered_map<Hash128, std::list<Item>::iterator> index_;
  std::deque<Hash128> interpreted_; // keys of interpreted programs, the latest last
};

// The program of the entry that outputs all wanted values, for the trace's numbers; or null.
Program* find_program(ProgramEntry& entry, const ValueBits& wanted, const std::vector<uint64_t>& numbers);
// Whether the program's outputs include all wanted values.
bool has_outputs(const Program& program, const ValueBits& wanted);

} // namespace torch_xla
