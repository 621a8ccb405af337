// Types, attributes and graphs as bytes (core/archive.h).
#pragma once

#include "core/archive.h"
#include "ir/computation.h"

namespace torch_xla {

template <typename Archive>
void fields(Archive& archive, Type& type) {
  archive(type.dtype, type.dims);
}

// By its structure's hash, which is enough for a key; what holds a loop's body is not read again.
template <typename Archive>
void fields(Archive& archive, ComputationRef& body) {
  if constexpr (std::is_same_v<Archive, Writer>) {
    archive(body->hash);
  } else {
    throw InternalError("a loop's body in a file");
  }
}

// All of a trace that decides on its program, nothing else: graphs whose bytes are equal compute the same. Lines of the user's are left
// out. Rows of one name are told apart by their kind (library_form()).
std::string graph_key(const Graph& graph);

} // namespace torch_xla
