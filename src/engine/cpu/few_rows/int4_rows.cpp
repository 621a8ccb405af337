// ATen packs blocks of columns: 64 for AVX-512, 32 for AVX2. A block has, for each k, a byte for two columns, half a block apart. Blocks of
// fewer columns, at the end, have a byte for two neighbors.
#include "engine/cpu/few_rows/int4_rows.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/few_rows/vectors.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {

#if defined(__x86_64__)
namespace {

constexpr int64_t kBytesAhead = 8192; // prefetched
constexpr int64_t kGroupsAhead = 4; // scales and zeros of groups lie far apart: they are prefetched
constexpr int64_t kEndColumns = 16; // of a block at the end: a multiple

// What one thread needs.
template <typename T>
struct Part {
  const Int4Product& p;
  const float* a;
  const float* group_sums; // of a: [rows, inner / group]
};

// Sums over a group of a row times q, for the low halves of bytes and for whole bytes: the high halves are the rest, and cost no shift.
template <int64_t kWidth, int64_t kStrips, int64_t kRows>
struct GroupSums {
  Vector<kWidth> low[kRows][kStrips];
  Vector<kWidth> high[kRows][kStrips];
};

// The low 4 bits as numbers.
template <int64_t kWidth>
XLA_INLINE void set_low(Vector<kWidth>& low, const Integers<kWidth>& bytes) {
  if constexpr (kWidth == 16) { // one instruction, which takes 4 bits of each place
    const Vector<kWidth> numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    low = __builtin_shuffle(numbers, bytes);
  } else {
    low = __builtin_convertvector(bytes & 15, Vector<kWidth>);
  }
}

// Adds a[m] times the bytes of one k.
template <int64_t kWidth, int64_t kStrips, int64_t kRows>
XLA_INLINE void add_bytes(GroupSums<kWidth, kStrips, kRows>& sums, const uint8_t* q, const float* a, int64_t a_stride) {
  for (int64_t s = 0; s < kStrips; ++s) {
    Integers<kWidth> both;
    load<kWidth>(both, q + s * kWidth);
    const Vector<kWidth> whole = __builtin_convertvector(both, Vector<kWidth>);
    Vector<kWidth> low;
    set_low<kWidth>(low, both);
    for (int64_t m = 0; m < kRows; ++m) {
      sums.low[m][s] += a[m * a_stride] * low;
      sums.high[m][s] += a[m * a_stride] * whole;
    }
  }
}

// The sums over one group, from its first byte and its first number of a.
template <int64_t kWidth, int64_t kStrips, int64_t kRows>
XLA_INLINE void sum_group(
    GroupSums<kWidth, kStrips, kRows>& sums, const uint8_t* q, int64_t q_stride, const float* a, int64_t a_stride, int64_t group) {
  GroupSums<kWidth, kStrips, kRows> odd = {};
  sums = {};
  int64_t k = 0;
  for (; k + 2 <= group; k += 2) {
    __builtin_prefetch(q + k * q_stride + kBytesAhead, 0, 2);
    add_bytes<kWidth, kStrips, kRows>(sums, q + k * q_stride, a + k, a_stride);
    add_bytes<kWidth, kStrips, kRows>(kRows == 1 ? odd : sums, q + (k + 1) * q_stride, a + k + 1, a_stride);
  }
  if (k < group) {
    add_bytes<kWidth, kStrips, kRows>(sums, q + k * q_stride, a + k, a_stride);
  }
  for (int64_t m = 0; m < kRows; ++m) {
    for (int64_t s = 0; s < kStrips; ++s) {
      sums.low[m][s] += odd.low[m][s];
      sums.high[m][s] = (sums.high[m][s] + odd.high[m][s] - sums.low[m][s]) * (1.0f / 16);
    }
  }
}

// A whole block, from `column` on, for kRows rows.
template <int64_t kWidth, int64_t kRows, typename T>
XLA_INLINE void multiply_block(const Part<T>& part, int64_t row, int64_t column) {
  constexpr int64_t kStrips = 2;
  const Int4Product& p = part.p;
  const int64_t groups = p.inner / p.group;
  const uint8_t* q = p.q + column * p.inner / 2;
  Vector<kWidth> totals[kRows][2 * kStrips] = {};
  for (int64_t g = 0; g < groups; ++g) {
    GroupSums<kWidth, kStrips, kRows> sums;
    sum_group<kWidth, kStrips, kRows>(
        sums, q + g * p.group * kStrips * kWidth, kStrips * kWidth, part.a + row * p.inner + g * p.group, p.inner, p.group);
    const T* pairs = static_cast<const T*>(p.scales_and_zeros) + (g * p.columns + column) * 2;
    for (int64_t i = 0; i < 2 * kStrips; ++i) {
      __builtin_prefetch(pairs + kGroupsAhead * 2 * p.columns + 2 * i * kWidth, 0, 2);
      Vector<kWidth> first;
      Vector<kWidth> second;
      load<kWidth>(first, pairs + 2 * i * kWidth);
      load<kWidth>(second, pairs + (2 * i + 1) * kWidth);
      Vector<kWidth> scale;
      Vector<kWidth> zero;
      split_pairs<kWidth>(scale, zero, first, second);
      for (int64_t m = 0; m < kRows; ++m) {
        const float sum = part.group_sums[(row + m) * groups + g];
        const Vector<kWidth>& products = i < kStrips ? sums.low[m][i] : sums.high[m][i - kStrips];
        totals[m][i] += scale * (products - 8 * sum) + zero * sum;
      }
    }
  }
  for (int64_t m = 0; m < kRows; ++m) {
    for (int64_t i = 0; i < 2 * kStrips; ++i) {
      store<kWidth>(static_cast<T*>(p.out) + (row + m) * p.columns + column + i * kWidth, totals[m][i]);
    }
  }
}

// 16 columns of the last block, of `columns` columns, for one row.
template <typename T>
XLA_INLINE void multiply_end(const Part<T>& part, int64_t row, int64_t block, int64_t columns, int64_t column) {
  constexpr int64_t kWidth = kEndColumns / 2;
  const Int4Product& p = part.p;
  const int64_t groups = p.inner / p.group;
  const uint8_t* q = p.q + block * p.inner / 2 + (column - block) / 2;
  float totals[kEndColumns] = {};
  for (int64_t g = 0; g < groups; ++g) {
    GroupSums<kWidth, 1, 1> sums;
    sum_group<kWidth, 1, 1>(sums, q + g * p.group * columns / 2, columns / 2, part.a + row * p.inner + g * p.group, p.inner, p.group);
    const T* pairs = static_cast<const T*>(p.scales_and_zeros) + (g * p.columns + column) * 2;
    const float sum = part.group_sums[row * groups + g];
    for (int64_t i = 0; i < kEndColumns; ++i) {
      const float products = i % 2 == 0 ? sums.low[0][0][i / 2] : sums.high[0][0][i / 2];
      totals[i] += static_cast<float>(pairs[2 * i]) * (products - 8 * sum) + static_cast<float>(pairs[2 * i + 1]) * sum;
    }
  }
  convert<kWidth>(static_cast<T*>(p.out) + row * p.columns + column, totals, kEndColumns);
}

template <int64_t kWidth, typename T>
XLA_INLINE void multiply_blocks(const Part<T>& part, int64_t begin, int64_t end) {
  constexpr int64_t kRowsAtOnce = kWidth == 16 ? 4 : 2; // what the registers hold
  constexpr int64_t kBlock = 4 * kWidth;
  for (int64_t block = begin * kBlock; block < end * kBlock; block += kBlock) {
    const int64_t columns = std::min(kBlock, part.p.columns - block);
    int64_t row = 0;
    for (; columns == kBlock && row + kRowsAtOnce <= part.p.rows; row += kRowsAtOnce) {
      multiply_block<kWidth, kRowsAtOnce>(part, row, block);
    }
    for (; columns == kBlock && row + 2 <= part.p.rows; row += 2) {
      multiply_block<kWidth, 2>(part, row, block);
    }
    for (; columns == kBlock && row < part.p.rows; ++row) {
      multiply_block<kWidth, 1>(part, row, block);
    }
    for (; row < part.p.rows; ++row) {
      for (int64_t i = 0; i < columns; i += kEndColumns) {
        multiply_end(part, row, block, columns, block + i);
      }
    }
  }
}

template <typename T>
XLA_FOR_AVX512 void multiply_by_avx512(const Part<T>& part, int64_t begin, int64_t end) {
  multiply_blocks<16>(part, begin, end);
}

template <typename T>
XLA_FOR_AVX2 void multiply_by_avx2(const Part<T>& part, int64_t begin, int64_t end) {
  multiply_blocks<8>(part, begin, end);
}

template <typename T>
void share_blocks(const Int4Product& p) {
  const FloatRows a(static_cast<const T*>(p.a), p.rows, p.inner); // groups are whole vectors: no zeros between rows
  const int64_t groups = p.inner / p.group;
  std::vector<float> sums(static_cast<size_t>(p.rows * groups));
  for (size_t i = 0; i < sums.size(); ++i) {
    const float* numbers = a.rows() + static_cast<int64_t>(i) * p.group;
    sums[i] = std::accumulate(numbers, numbers + p.group, 0.0f);
  }
  const Part<T> part{p, a.rows(), sums.data()};
  const int64_t block = int4_block();
  auto multiply = block == 64 ? multiply_by_avx512<T> : multiply_by_avx2<T>;
  const int64_t grain = std::max<int64_t>(1, kNumbersPerThread / std::max<int64_t>(1, p.inner * block));
  const int64_t blocks = (p.columns + block - 1) / block;
  share_out(blocks, grain, blocks / grain, [&](int64_t begin, int64_t end) { multiply(part, begin, end); });
}

} // namespace

int64_t int4_block() {
  static const bool is_avx2 = has_avx2() && at::get_cpu_capability() == "AVX2";
  return has_avx512() ? 64 : is_avx2 ? 32 : 0;
}

void multiply_int4_rows(const Int4Product& p) {
  p.dtype == DType::F32 ? share_blocks<float>(p) : p.dtype == DType::F16 ? share_blocks<c10::Half>(p) : share_blocks<c10::BFloat16>(p);
}

#else

int64_t int4_block() {
  return 0;
}

void multiply_int4_rows(const Int4Product& /*product*/) {
  XLA_ASSERT(false, "no code for this processor");
}

#endif

} // namespace torch_xla::cpu
