// Which blocks of queries and keys a mask hides, lets through, or changes, found once for all heads that share it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "engine/cpu/cost.h"
#include "engine/cpu/few_rows/few_queries.h"
#include "engine/cpu/few_rows/vectors.h"
#include "engine/cpu/threads/team.h"

#if defined(__x86_64__)
namespace torch_xla::cpu {

constexpr int64_t kRows = 64; // of a block of queries
constexpr int64_t kKeys = 128; // of a block of keys

// The bits of a number.
template <typename T>
using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;

// What a mask does to a block of queries and keys.
enum class Sight : uint8_t { kNone, kAll, kSome };

// Of all blocks of a mask, where it differs.
class Sights {
 public:
  explicit Sights(const Queries& q)
      : row_blocks_(count_blocks(q.queries, kRows)),
        key_blocks_(count_blocks(q.keys, kKeys)),
        batch_stride_(q.mask_strides[0] == 0 ? 0 : (q.mask_strides[1] == 0 ? 1 : q.heads)),
        head_stride_(q.mask_strides[1] == 0 ? 0 : 1),
        masks_(q.mask ? (q.mask_strides[0] == 0 ? 1 : q.batch) * (q.mask_strides[1] == 0 ? 1 : q.heads) : 0),
        sights_(static_cast<size_t>(masks_ * row_blocks_ * key_blocks_)) {}

  Sight get(int64_t batch, int64_t head, int64_t row, int64_t key) const {
    const int64_t mask = batch * batch_stride_ + head * head_stride_;
    return masks_ == 0 ? Sight::kAll : sights_[static_cast<size_t>((mask * row_blocks_ + row / kRows) * key_blocks_ + key / kKeys)];
  }

  template <typename T>
  void look(const Queries& q) {
    const auto numbers = q.queries * q.keys;
    share_out(masks_ * row_blocks_, 1, masks_ * numbers / kNumbersPerThread, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        look_at_rows<T>(q, i / row_blocks_, i % row_blocks_);
      }
    });
  }

 private:
  static int64_t count_blocks(int64_t n, int64_t size) {
    return (n + size - 1) / size;
  }
  template <typename T>
  XLA_FOR_AVX512 void look_at_rows(const Queries& q, int64_t mask, int64_t row_block);

  int64_t row_blocks_, key_blocks_, batch_stride_, head_stride_, masks_;
  std::vector<Sight> sights_;
};

template <typename T>
XLA_FOR_AVX512 void Sights::look_at_rows(const Queries& q, int64_t mask, int64_t row_block) {
  constexpr auto kHiddenBits = static_cast<Bits<T>>(sizeof(T) == 2 ? 0xFF80 : 0xFF800000);
  const auto& s = q.mask_strides;
  const int64_t heads = s[1] == 0 ? 1 : q.heads;
  const auto* first = static_cast<const Bits<T>*>(q.mask) + mask / heads * s[0] + mask % heads * s[1] + row_block * kRows * s[2];
  const int64_t rows = s[2] == 0 ? 1 : std::min(kRows, q.queries - row_block * kRows);
  for (int64_t block = 0; block < key_blocks_; ++block) {
    const int64_t keys = s[3] == 0 ? 1 : std::min(kKeys, q.keys - block * kKeys);
    Bits<T> visible = 0;
    Bits<T> added = 0;
    for (int64_t m = 0; m < rows; ++m) {
      const auto* numbers = first + m * s[2] + block * kKeys * s[3];
      for (int64_t j = 0; j < keys; ++j) {
        const Bits<T> bits = numbers[j * s[3]];
        visible |= bits ^ kHiddenBits;
        added |= static_cast<Bits<T>>(bits << 1); // but the sign
      }
    }
    sights_[static_cast<size_t>((mask * row_blocks_ + row_block) * key_blocks_ + block)] = visible == 0 ? Sight::kNone
        : added == 0                                                                                    ? Sight::kAll
                                                                                                        : Sight::kSome;
  }
}

} // namespace torch_xla::cpu
#endif
