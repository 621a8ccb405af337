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

uint64_t hash_sample(const void* data, size_t nbytes) {
  constexpr size_t kWords = 256;
  auto bytes = static_cast<const unsigned char*>(data);
  Hash128 hash;
  if (nbytes <= kWords * sizeof(uint64_t)) {
    hash.add_bytes(bytes, nbytes);
    return hash.lo;
  }
  hash.add(nbytes);
  for (size_t i = 0; i < kWords; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + (nbytes - sizeof(word)) * i / (kWords - 1), sizeof(word));
    hash.add(word);
  }
  return hash.lo;
}

} // namespace torch_xla
