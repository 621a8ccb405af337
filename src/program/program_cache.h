// Program cache: a device's compiled programs by trace key, with the sets of values they output.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/hash.h"
#include "engine/engine.h"
#include "program/number_groups.h"
#include "program/offset_pattern.h"

namespace torch_xla {

// One bit per value of a trace.
using ValueBits = std::vector<uint64_t>;
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
  int64_t runs_left = 0; // of a program that is interpreted: before it is compiled
};

// The programs of one trace, or of all that differ from it only in where some views begin, and the union of the output sets that were ever
// asked for.
struct ProgramEntry {
  OffsetPattern offsets;
  std::vector<Program> programs;
  ValueBits wanted;
};

// Least recently used entries are dropped beyond the capacity. Guarded by the device's recording lock.
class ProgramCache {
 public:
  explicit ProgramCache(size_t capacity) : capacity_(capacity) {}
  // The entry of the key for these offsets. Where there is none, a new one, for all values of those that differ from what was there before.
  ProgramEntry& entry(const Hash128& key, const std::vector<int64_t>& offsets);
  // Called before an interpreted program of the key is added. They are made again as fast as they are found, so that only some are kept:
  // the oldest one goes.
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
  std::deque<Hash128> interpreted_; // the keys that such programs were made for, the latest last
};

// The program of the entry whose outputs include all wanted values, for numbers of the trace; or null.
Program* find_program(ProgramEntry& entry, const ValueBits& wanted, const std::vector<uint64_t>& numbers);
// Whether the program's outputs include all wanted values.
bool has_outputs(const Program& program, const ValueBits& wanted);

} // namespace torch_xla
