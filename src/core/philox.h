// Constants of Philox 4x32-10, from which every engine makes the same bits.
// After Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3 (SC 2011).
#pragma once

#include <cstdint>

#include "core/hash.h"

namespace torch_xla::philox {

constexpr uint32_t kMultiplier0 = 0xd2511f53;
constexpr uint32_t kMultiplier1 = 0xcd9e8d57;
constexpr uint32_t kWeyl0 = 0x9e3779b9;
constexpr uint32_t kWeyl1 = 0xbb67ae85;
constexpr int kRounds = 10;

// The seed of another generator for one draw of the stream.
inline uint64_t seed_of_draw(uint64_t seed, uint64_t offset) {
  Hash128 hash;
  hash.add(seed);
  hash.add(offset);
  return hash.lo;
}

} // namespace torch_xla::philox
