// 128-bit hashing for trace keys and kernel keys: two independent multiply-mix lanes.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace torch_xla {

struct Hash128 {
  uint64_t lo = 0x9ae16a3b2f90404fULL;
  uint64_t hi = 0xc949d7c7509e6557ULL;

  void add(uint64_t v) {
    lo = mix(lo ^ v, 0x9e3779b97f4a7c15ULL);
    hi = mix(hi ^ (v + 0x2545f4914f6cdd1dULL), 0xd6e8feb86659fd93ULL);
  }
  void add(const Hash128& h) {
    add(h.lo);
    add(h.hi);
  }
  void add_bytes(const void* data, size_t size) {
    auto p = static_cast<const unsigned char*>(data);
    add(size);
    for (; size >= 8; p += 8, size -= 8) {
      uint64_t v;
      std::memcpy(&v, p, 8);
      add(v);
    }
    if (size) {
      uint64_t v = 0;
      std::memcpy(&v, p, size);
      add(v);
    }
  }
  bool operator==(const Hash128& o) const = default;
  std::string hex() const;

 private:
  static uint64_t mix(uint64_t a, uint64_t k) {
    unsigned __int128 m = static_cast<unsigned __int128>(a) * k;
    return static_cast<uint64_t>(m) ^ static_cast<uint64_t>(m >> 64);
  }
};

// Hashes all bytes, or a sample if there are many: equal bytes have equal hashes, nearly all others differ.
uint64_t hash_sample(const void* data, size_t nbytes);

} // namespace torch_xla

template <>
struct std::hash<torch_xla::Hash128> {
  size_t operator()(const torch_xla::Hash128& h) const {
    return h.lo;
  }
};
