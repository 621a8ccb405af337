// Names and classes of the primitives.
#include "ir/prim.h"

#include <iterator>

namespace torch_xla {
namespace {

struct Row {
  const char* name;
  PrimClass prim_class;
};

#define XLA_PRIM_ROW(prim, name, prim_class) {name, PrimClass::prim_class},
constexpr Row kRows[] = {
    {"none", PrimClass::kNone},
    {"constant", PrimClass::kNone},
    {"scalar", PrimClass::kNone},
    {"load", PrimClass::kSimple},
    {"store", PrimClass::kSimple},
    {"iota", PrimClass::kSimple},
    {"random_bits", PrimClass::kRandom},
    {"convert", PrimClass::kSimple},
    {"select", PrimClass::kSimple},
    XLA_UNARY_PRIMS(XLA_PRIM_ROW) XLA_BINARY_PRIMS(XLA_PRIM_ROW) XLA_REDUCE_PRIMS(XLA_PRIM_ROW)};
#undef XLA_PRIM_ROW
static_assert(std::size(kRows) == static_cast<size_t>(Prim::kCount));

const Row& row(Prim p) {
  return kRows[static_cast<size_t>(p)];
}

} // namespace

const char* prim_name(Prim p) {
  return row(p).name;
}

PrimClass prim_class(Prim p) {
  return row(p).prim_class;
}

} // namespace torch_xla
