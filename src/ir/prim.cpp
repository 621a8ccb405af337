// Names of the primitives.
#include "ir/prim.h"

#include <iterator>

namespace torch_xla {
namespace {

#define XLA_PRIM_TEXT(name, text) text,
constexpr const char* kNames[] = {
    "none",
    "constant",
    "scalar",
    "load",
    "store",
    "iota",
    "random_bits",
    "convert",
    "select",
    XLA_UNARY_PRIMS(XLA_PRIM_TEXT) XLA_BINARY_PRIMS(XLA_PRIM_TEXT) XLA_REDUCE_PRIMS(XLA_PRIM_TEXT)};
#undef XLA_PRIM_TEXT
static_assert(std::size(kNames) == static_cast<size_t>(Prim::kCount));

} // namespace

const char* prim_name(Prim p) {
  return kNames[static_cast<size_t>(p)];
}

} // namespace torch_xla
