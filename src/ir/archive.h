// Types, attributes and graphs as bytes (core/archive.h).
#pragma once

#include "core/archive.h"
#include "ir/computation.h"

namespace torch_xla {

template <typename Archive>
void fields(Archive& archive, Type& type) {
  archive(type.dtype, type.dims);
}

template <typename Archive>
void fields(Archive& archive, ShardingRef& sharding) {
  Sharding parts = sharding ? *sharding : Sharding();
  archive(parts.tiles, parts.devices);
  if constexpr (std::is_same_v<Archive, Reader>) {
    sharding = parts.devices.empty() ? nullptr : std::make_shared<Sharding>(std::move(parts));
  }
}

// Writes the hash of the structure, which is enough for a key: attributes with a loop's body are never read back.
template <typename Archive>
void fields(Archive& archive, ComputationRef& body) {
  if constexpr (std::is_same_v<Archive, Writer>) {
    archive(body->hash);
  } else {
    throw InternalError("a loop's body in a file");
  }
}

// All properties of a trace that its program depends on, nothing else: graphs with equal bytes compute the same. The user's lines are left
// out. Rows of one name differ by their kind (library_form()).
std::string graph_key(const Graph& graph);

} // namespace torch_xla
