// Sharding: how a value is cut into tiles over the devices of a program.
#pragma once

#include <memory>
#include <string>

#include "core/hash.h"
#include "core/inline_vec.h"

namespace torch_xla {

// XLA's OpSharding of the types REPLICATED and OTHER.
struct Sharding {
  Dims tiles; // for each dim of the value their number
  Dims devices; // by tile, in row-major order; each tile has the same number of devices, which hold copies of it

  int64_t num_devices() const {
    return static_cast<int64_t>(devices.size());
  }
  int64_t num_tiles() const {
    return num_elements(tiles);
  }
  // Whether each device holds all of the value.
  bool is_replicated() const {
    return num_tiles() == 1;
  }
  // The dims of a tile of a value with these dims: the last tiles along a dim may be padded to them, or be padding alone.
  Dims tile_dims(const Dims& dims) const;
  // The first element of the device's tile, by dim; beyond the value for tiles of padding alone.
  Dims tile_start(const Dims& dims, int64_t device) const;
  // Whether tiles of a value with these dims have padding.
  bool pads(const Dims& dims) const;
  // XLA's text: "{replicated}", "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}".
  std::string text() const;
  void add_to(Hash128& hash) const;
  bool operator==(const Sharding&) const = default;
};
// Null: whole on each device of the program.
using ShardingRef = std::shared_ptr<const Sharding>;

// A sharding of these parts, null if it is replicated. Throws UserError (Value) unless each device from 0 on has one place, and each tile
// as many devices.
ShardingRef make_sharding(Dims tiles, Dims devices);
inline bool same_sharding(const ShardingRef& a, const ShardingRef& b) {
  return a == b || (a && b && *a == *b);
}
// As Sharding::text(), also for null.
std::string sharding_text(const ShardingRef& sharding);

} // namespace torch_xla
