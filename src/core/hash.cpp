// Text of a 128-bit hash.
#include "core/hash.h"

#include <cinttypes>
#include <cstdio>

namespace torch_xla {

std::string Hash128::hex() const {
  char text[33];
  std::snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64, hi, lo);
  return text;
}

} // namespace torch_xla
