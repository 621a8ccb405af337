// Tiles of shardings, and their text.
#include "ir/sharding.h"

#include <algorithm>

#include "core/errors.h"
#include "ir/type.h"

namespace torch_xla {

Dims Sharding::tile_dims(const Dims& dims) const {
  Dims tile(dims.size(), 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    tile[i] = (dims[i] + tiles[i] - 1) / tiles[i];
  }
  return tile;
}

Dims Sharding::tile_start(const Dims& dims, int64_t device) const {
  const auto* found = std::find(devices.begin(), devices.end(), device);
  int64_t number = (found - devices.begin()) / (num_devices() / num_tiles());
  Dims start = tile_dims(dims);
  for (size_t i = dims.size(); i-- > 0;) {
    start[i] *= number % tiles[i];
    number /= tiles[i];
  }
  return start;
}

bool Sharding::pads(const Dims& dims) const {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] % tiles[i] != 0) {
      return true;
    }
  }
  return false;
}

std::string Sharding::text() const {
  if (is_replicated()) {
    return "{replicated}";
  }
  Dims sizes = tiles;
  const int64_t copies = num_devices() / num_tiles();
  if (copies > 1) {
    sizes.push_back(copies);
  }
  std::string order = dims_text(devices, '[', ']');
  order = order.substr(1, order.size() - 2);
  return str("{devices=", dims_text(sizes, '[', ']'), order, copies > 1 ? " last_tile_dim_replicate}" : "}");
}

void Sharding::add_to(Hash128& hash) const {
  for (const Dims* list : {&tiles, &devices}) {
    hash.add(list->size());
    for (int64_t v : *list) {
      hash.add(static_cast<uint64_t>(v));
    }
  }
}

ShardingRef make_sharding(Dims tiles, Dims devices) {
  Dims sorted = devices;
  std::sort(sorted.begin(), sorted.end());
  bool fits = std::all_of(tiles.begin(), tiles.end(), [](int64_t n) { return n > 0; }) &&
      sorted.size() % static_cast<size_t>(num_elements(tiles)) == 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    fits = fits && sorted[i] == static_cast<int64_t>(i);
  }
  XLA_CHECK_KIND(
      Value, fits && !devices.empty(), "no sharding has tiles ", dims_text(tiles, '[', ']'), " on devices ", dims_text(devices, '[', ']'));
  auto sharding = std::make_shared<Sharding>(Sharding{std::move(tiles), std::move(devices)});
  return sharding->is_replicated() ? nullptr : sharding;
}

std::string sharding_text(const ShardingRef& sharding) {
  return sharding ? sharding->text() : "{replicated}";
}

} // namespace torch_xla
