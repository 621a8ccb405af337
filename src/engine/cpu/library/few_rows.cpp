// The matrix is read once, in the order of memory, while a few rows at once are summed in registers. Its time is the time of reading the
// matrix.
#include "engine/cpu/library/few_rows.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>

#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {

#if defined(__x86_64__)
namespace {

#define XLA_INLINE inline __attribute__((always_inline, target("f16c"))) // into functions with the processor's instructions

constexpr int64_t kRowsAtOnce = 4;
constexpr int64_t kCachedNumbers = 4096; // 16 KB, half of a first-level cache
constexpr int64_t kNumbersAhead = 2048; // prefetched: 8 KB into the second-level cache

template <typename T, int64_t kWidth>
struct VectorOf {
  using type [[gnu::vector_size(kWidth * sizeof(T))]] = T;
};
template <int64_t kWidth>
using Vector = typename VectorOf<float, kWidth>::type;
template <int64_t kWidth>
using Words = typename VectorOf<uint32_t, kWidth>::type;
template <int64_t kWidth>
using HalfWords = typename VectorOf<uint16_t, kWidth>::type;

template <int64_t kWidth>
XLA_INLINE void load(Vector<kWidth>& v, const float* from) {
  std::memcpy(&v, from, sizeof(v));
}

template <int64_t kWidth>
XLA_INLINE void load(Vector<kWidth>& v, const c10::BFloat16* from) {
  HalfWords<kWidth> upper;
  std::memcpy(&upper, from, sizeof(upper));
  const Words<kWidth> bits = __builtin_convertvector(upper, Words<kWidth>) << 16;
  std::memcpy(&v, &bits, sizeof(v));
}

template <int64_t kWidth>
XLA_INLINE void load(Vector<kWidth>& v, const c10::Half* from) {
  if constexpr (kWidth == 8) {
    v = reinterpret_cast<Vector<8>>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  } else {
    Vector<8> low;
    Vector<8> high;
    load<8>(low, from);
    load<8>(high, from + 8);
    v = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
}

// Reads part of the matrix and prefetches the next part, perhaps beyond the matrix's end. Without it a product of 384 x 1,536 takes 1.4
// times as long.
template <int64_t kWidth, typename T>
XLA_INLINE void load_ahead(Vector<kWidth>& v, const T* from, int64_t next) {
  load<kWidth>(v, from);
  __builtin_prefetch(from + next, 0, 2);
}

template <int64_t kWidth>
XLA_INLINE float sum(const Vector<kWidth>& v) {
  if constexpr (kWidth == 4) {
    return (v[0] + v[2]) + (v[1] + v[3]);
  } else {
    Vector<kWidth / 2> low;
    Vector<kWidth / 2> high;
    std::memcpy(&low, &v, sizeof(low));
    std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof(low), sizeof(high));
    low += high;
    return sum<kWidth / 2>(low);
  }
}

// Each number of out on its own, from two pieces of memory. A single row takes several sums, as an addition waits for the one before.
template <int64_t kWidth, int64_t kRows, typename T>
XLA_INLINE void add_dots(const RowProduct& p, const T* b_begin, int64_t begin, int64_t end) {
  constexpr int64_t kSums = kRowsAtOnce / kRows;
  for (int64_t n = begin; n < end; ++n) {
    const T* column = b_begin + n * p.b_stride;
    Vector<kWidth> sums[kRows][kSums] = {};
    int64_t k = 0;
    for (; k + kSums * kWidth <= p.inner; k += kSums * kWidth) {
      for (int64_t s = 0; s < kSums; ++s) {
        Vector<kWidth> b;
        load_ahead<kWidth>(b, column + k + s * kWidth, kNumbersAhead);
        for (int64_t m = 0; m < kRows; ++m) {
          Vector<kWidth> a;
          load<kWidth>(a, p.a + m * p.inner + k + s * kWidth);
          sums[m][s] += a * b;
        }
      }
    }
    for (int64_t m = 0; m < kRows; ++m) {
      for (int64_t s = 1; s < kSums; ++s) {
        sums[m][0] += sums[m][s];
      }
      float total = sum<kWidth>(sums[m][0]);
      for (int64_t rest = k; rest < p.inner; ++rest) {
        total += p.a[m * p.inner + rest] * column[rest];
      }
      p.out[m * p.columns + n] += total;
    }
  }
}

// Eight rows of the matrix at once, each times a number of a.
template <int64_t kWidth, int64_t kRows, typename T>
XLA_INLINE void add_rows(const RowProduct& p, const T* b_begin, int64_t begin, int64_t end) {
  constexpr int64_t kMatrixRows = 8;
  int64_t k = 0;
  for (; k + kMatrixRows <= p.inner; k += kMatrixRows) {
    const T* b = b_begin + k * p.b_stride;
    int64_t n = begin;
    for (; n + kWidth <= end; n += kWidth) {
      Vector<kWidth> rows[kMatrixRows];
      for (int64_t i = 0; i < kMatrixRows; ++i) {
        load_ahead<kWidth>(rows[i], b + i * p.b_stride + n, kMatrixRows * p.b_stride);
      }
      for (int64_t m = 0; m < kRows; ++m) {
        const float* a = p.a + m * p.inner + k;
        float* out = p.out + m * p.columns + n;
        Vector<kWidth> even;
        Vector<kWidth> odd = {};
        load<kWidth>(even, out);
        for (int64_t i = 0; i < kMatrixRows; i += 2) {
          even += a[i] * rows[i];
          odd += a[i + 1] * rows[i + 1];
        }
        even += odd;
        std::memcpy(out, &even, sizeof(even));
      }
    }
    for (; n < end; ++n) {
      for (int64_t m = 0; m < kRows; ++m) {
        for (int64_t i = 0; i < kMatrixRows; ++i) {
          p.out[m * p.columns + n] += p.a[m * p.inner + k + i] * b[i * p.b_stride + n];
        }
      }
    }
  }
  for (; k < p.inner; ++k) {
    for (int64_t m = 0; m < kRows; ++m) {
      for (int64_t n = begin; n < end; ++n) {
        p.out[m * p.columns + n] += p.a[m * p.inner + k] * b_begin[k * p.b_stride + n];
      }
    }
  }
}

template <int64_t kWidth, int64_t kRows, typename T>
XLA_INLINE void add_some(const RowProduct& p, const T* b, int64_t begin, int64_t end) {
  p.b_is_transposed ? add_dots<kWidth, kRows>(p, b, begin, end) : add_rows<kWidth, kRows>(p, b, begin, end);
}

// The columns of [begin, end), in blocks that let the next rows find the matrix, or the sums, in the first-level cache.
template <int64_t kWidth, typename T>
XLA_INLINE void add_columns(const RowProduct& p, const T* b, int64_t begin, int64_t end) {
  const int64_t cached = kCachedNumbers / std::max<int64_t>(1, p.b_is_transposed ? p.inner : p.rows);
  // Whole vectors of sums: columns beyond the last whole one are added in another order.
  const int64_t block = p.b_is_transposed ? std::max<int64_t>(1, cached) : std::max(kWidth, cached / kWidth * kWidth);
  for (int64_t from = begin; from < end; from += block) {
    const int64_t to = std::min(end, from + block);
    RowProduct some = p;
    auto go_on = [&some](int64_t rows) {
      some.rows -= rows;
      some.a += rows * some.inner;
      some.out += rows * some.columns;
    };
    for (; some.rows >= kRowsAtOnce; go_on(kRowsAtOnce)) {
      add_some<kWidth, kRowsAtOnce>(some, b, from, to);
    }
    for (; some.rows >= 2; go_on(2)) {
      add_some<kWidth, 2>(some, b, from, to);
    }
    if (some.rows == 1) {
      add_some<kWidth, 1>(some, b, from, to);
    }
  }
}

template <typename T>
__attribute__((target("arch=x86-64-v4"))) void add_by_avx512(const RowProduct& p, const T* b, int64_t begin, int64_t end) {
  add_columns<16>(p, b, begin, end);
}

template <typename T>
__attribute__((target("arch=x86-64-v3"))) void add_by_avx2(const RowProduct& p, const T* b, int64_t begin, int64_t end) {
  add_columns<8>(p, b, begin, end);
}

bool has_avx512() {
  static const bool has = __builtin_cpu_supports("x86-64-v4");
  return has;
}

} // namespace

bool can_multiply_rows() {
  static const bool can = __builtin_cpu_supports("x86-64-v3");
  return can;
}

template <typename T>
void add_row_product(const RowProduct& product, const T* b) {
  constexpr int64_t kUnit = 16; // columns: a cache line of out
  auto add = has_avx512() ? add_by_avx512<T> : add_by_avx2<T>;
  const int64_t numbers = std::max<int64_t>(1, product.inner * kUnit);
  const int64_t grain = std::max<int64_t>(1, kNumbersPerThread / numbers);
  const int64_t units = (product.columns + kUnit - 1) / kUnit;
  share_out(units, grain, units / grain, [&](int64_t begin, int64_t end) {
    add(product, b, begin * kUnit, std::min(product.columns, end * kUnit));
  });
}

#else

bool can_multiply_rows() {
  return false;
}

template <typename T>
void add_row_product(const RowProduct& /*product*/, const T* /*b*/) {
  XLA_ASSERT(false, "no code for this processor");
}

#endif

template void add_row_product(const RowProduct& product, const float* b);
template void add_row_product(const RowProduct& product, const c10::Half* b);
template void add_row_product(const RowProduct& product, const c10::BFloat16* b);

} // namespace torch_xla::cpu
