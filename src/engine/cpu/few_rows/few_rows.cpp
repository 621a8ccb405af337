// The matrix is read once, in the order of memory, while a few rows at once are summed in registers. Its time is the time of reading the
// matrix.
#include "engine/cpu/few_rows/few_rows.h"

#include <algorithm>
#include <cstdint>

#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/few_rows/vectors.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {

#if defined(__x86_64__)
namespace {

constexpr int64_t kRowsAtOnce = 4;
constexpr int64_t kCachedNumbers = 4096; // of float32: 16 KB, a third to half of a first-level cache
constexpr int64_t kLine = 64; // bytes of a cache line
constexpr int64_t kBytesAhead = 8192; // prefetched into the second-level cache,
constexpr int64_t kBytesAheadPast = 5120; // and past it

// A product's part for one thread.
template <typename T>
struct Part {
  const RowProduct& p;
  const float* a; // the first row; rows end with zeros up to a whole vector
  int64_t a_stride;
  const T* b;
};

// The sums of some columns: whole vectors but for the last columns of a product.
struct Sums {
  float* numbers; // of the first row
  int64_t stride; // between rows
  int64_t from, to; // columns
};

// Prefetches what a loop reads soon, perhaps beyond the matrix's end: past the second-level cache, which it would only fill, or into it.
// Past it a token of a decoder of 168 million weights takes 0.86 (float32) and 0.79 (bfloat16) of the time.
template <int64_t kBytes, bool kPast>
XLA_INLINE void prefetch(const void* from) {
  for (int64_t line = 0; line < kBytes; line += kLine) {
    __builtin_prefetch(static_cast<const char*>(from) + line + (kPast ? kBytesAheadPast : kBytesAhead), 0, kPast ? 0 : 2);
  }
}

// Adds the products of one vector of each of kRows rows of a and of kColumns columns of b.
template <int64_t kWidth, int64_t kRows, int64_t kColumns, typename T>
XLA_INLINE void add_vectors(Vector<kWidth> (&totals)[kRows][kColumns], const float* a, int64_t a_stride, const T* b, int64_t b_stride) {
  Vector<kWidth> rows[kRows];
  for (int64_t m = 0; m < kRows; ++m) {
    load<kWidth>(rows[m], a + m * a_stride);
    __asm__("" : "+v"(rows[m])); // once for all columns
  }
  for (int64_t n = 0; n < kColumns; ++n) {
    Vector<kWidth> column;
    load<kWidth>(column, b + n * b_stride);
    for (int64_t m = 0; m < kRows; ++m) {
      totals[m][n] += rows[m] * column;
    }
  }
}

// The vectors whose sums are the numbers of kRows rows of a and kColumns columns of b, from pieces of memory. A single row takes several
// totals, as an addition waits for the one before; a column is summed in the same order beside others and alone.
template <int64_t kWidth, int64_t kRows, int64_t kColumns, typename T>
XLA_INLINE void add_dots(const Part<T>& part, int64_t column, Vector<kWidth> (&dots)[kRows][kWidth], int64_t at) {
  constexpr bool kReadsOnce = kRows == 1 && sizeof(T) > 1; // 8-bit integers are read more slowly than memory delivers
  constexpr int64_t kParts = kRowsAtOnce / kRows;
  constexpr int64_t kStep = std::max<int64_t>(kLine / static_cast<int64_t>(sizeof(T)), kParts * kWidth);
  const int64_t inner = part.p.inner;
  const int64_t stride = part.p.b_stride;
  const T* b = part.b + column * stride;
  Vector<kWidth> totals[kParts][kRows][kColumns] = {};
  int64_t k = 0;
  for (; k + kStep <= inner; k += kStep) {
    for (int64_t n = 0; n < kColumns; ++n) {
      prefetch<kStep * sizeof(T), kReadsOnce>(b + n * stride + k);
    }
    for (int64_t i = 0; i < kStep / kWidth; ++i) {
      add_vectors<kWidth>(totals[i % kParts], part.a + k + i * kWidth, part.a_stride, b + k + i * kWidth, stride);
    }
  }
  for (; k + kWidth <= inner; k += kWidth) {
    add_vectors<kWidth>(totals[0], part.a + k, part.a_stride, b + k, stride);
  }
  for (int64_t m = 0; m < kRows; ++m) {
    for (int64_t n = 0; n < kColumns; ++n) {
      for (int64_t i = 1; i < kParts; ++i) {
        totals[0][m][n] += totals[i][m][n];
      }
      if (k < inner) {
        Vector<kWidth> row;
        Vector<kWidth> rest;
        load<kWidth>(row, part.a + m * part.a_stride + k);
        load_some<kWidth>(rest, b + n * stride + k, inner - k);
        totals[0][m][n] += row * rest;
      }
      dots[m][at + n] = totals[0][m][n];
    }
  }
}

// A vector of columns at a time; two columns share what is loaded of several rows.
template <int64_t kWidth, int64_t kRows, typename T>
XLA_INLINE void add_columns(const Part<T>& part, const Sums& sums) {
  constexpr int64_t kColumns = kRows == 1 ? 1 : 2;
  for (int64_t column = sums.from; column < sums.to; column += kWidth) {
    Vector<kWidth> dots[kRows][kWidth] = {};
    const int64_t columns = std::min(kWidth, sums.to - column);
    int64_t n = 0;
    for (; n + kColumns <= columns; n += kColumns) {
      add_dots<kWidth, kRows, kColumns>(part, column + n, dots, n);
    }
    if (n < columns) {
      add_dots<kWidth, kRows, 1>(part, column + n, dots, n);
    }
    for (int64_t m = 0; m < kRows; ++m) {
      float* numbers = sums.numbers + m * sums.stride + column - sums.from;
      Vector<kWidth> added;
      Vector<kWidth> all;
      sum_each<kWidth>(added, dots[m]);
      load<kWidth>(all, numbers);
      all += added;
      store<kWidth>(numbers, all);
    }
  }
}

// Eight rows of the matrix at once, each times a number of a.
template <int64_t kWidth, int64_t kRows, typename T>
XLA_INLINE void add_rows(const Part<T>& part, const Sums& sums) {
  constexpr int64_t kMatrixRows = 8;
  const int64_t inner = part.p.inner;
  const int64_t a_stride = part.a_stride;
  const int64_t stride = part.p.b_stride;
  const int64_t columns = sums.to - sums.from;
  int64_t k = 0;
  for (; k + kMatrixRows <= inner; k += kMatrixRows) {
    const T* b = part.b + k * stride + sums.from;
    int64_t n = 0;
    for (; n + kWidth <= columns; n += kWidth) {
      Vector<kWidth> rows[kMatrixRows];
      for (int64_t i = 0; i < kMatrixRows; ++i) {
        load<kWidth>(rows[i], b + i * stride + n);
        __builtin_prefetch(b + (i + kMatrixRows) * stride + n, 0, 2);
      }
      for (int64_t m = 0; m < kRows; ++m) {
        const float* a = part.a + m * a_stride + k;
        float* out = sums.numbers + m * sums.stride + n;
        Vector<kWidth> even;
        Vector<kWidth> odd = {};
        load<kWidth>(even, out);
        for (int64_t i = 0; i < kMatrixRows; i += 2) {
          even += a[i] * rows[i];
          odd += a[i + 1] * rows[i + 1];
        }
        even += odd;
        store<kWidth>(out, even);
      }
    }
    for (; n < columns; ++n) {
      for (int64_t m = 0; m < kRows; ++m) {
        for (int64_t i = 0; i < kMatrixRows; ++i) {
          sums.numbers[m * sums.stride + n] += part.a[m * a_stride + k + i] * static_cast<float>(b[i * stride + n]);
        }
      }
    }
  }
  for (; k < inner; ++k) {
    for (int64_t m = 0; m < kRows; ++m) {
      for (int64_t n = 0; n < columns; ++n) {
        sums.numbers[m * sums.stride + n] += part.a[m * a_stride + k] * static_cast<float>(part.b[k * stride + sums.from + n]);
      }
    }
  }
}

template <int64_t kWidth, int64_t kRows, typename T>
XLA_INLINE void add_some(Part<T>& part, Sums& sums) {
  part.p.b_is_transposed ? add_columns<kWidth, kRows>(part, sums) : add_rows<kWidth, kRows>(part, sums);
  part.a += kRows * part.a_stride;
  sums.numbers += kRows * sums.stride;
}

template <typename Out>
XLA_INLINE void begin_sums(const RowProduct& p, const Sums& sums) {
  for (int64_t m = 0; m < p.rows; ++m) {
    float* row = sums.numbers + m * sums.stride;
    if (!p.bias) {
      std::fill_n(row, sums.to - sums.from, 0.0f);
      continue;
    }
    const Out* bias = static_cast<const Out*>(p.bias) + m * p.bias_strides[0] + sums.from * p.bias_strides[1];
    for (int64_t n = 0; n < sums.to - sums.from; ++n) {
      row[n] = static_cast<float>(bias[n * p.bias_strides[1]]);
    }
  }
}

template <int64_t kWidth, typename Out>
XLA_INLINE void end_sums(const RowProduct& p, const Sums& sums) {
  const int64_t columns = sums.to - sums.from;
  for (int64_t m = 0; m < p.rows; ++m) {
    float* row = sums.numbers + m * sums.stride;
    for (int64_t n = 0; n < columns && p.scales; ++n) {
      row[n] *= static_cast<float>(static_cast<const Out*>(p.scales)[sums.from + n]);
    }
    convert<kWidth>(static_cast<Out*>(p.out) + m * p.columns + sums.from, row, columns);
  }
}

// The columns of [begin, end), in blocks that let the next rows find the matrix, or the sums, in a near cache. Blocks are whole vectors:
// other columns are added in another order.
template <int64_t kWidth, typename Out, typename T>
XLA_INLINE void multiply_columns(const RowProduct& p, const FloatRows& a, int64_t begin, int64_t end) {
  alignas(kLine) float numbers[kCachedNumbers];
  const int64_t block = p.b_is_transposed && p.rows > kRowsAtOnce ? kWidth : kCachedNumbers / p.rows / kWidth * kWidth;
  for (int64_t from = begin; from < end; from += block) {
    Part<T> part{p, a.rows(), a.stride(), static_cast<const T*>(p.b)};
    const Sums all{numbers, block, from, std::min(end, from + block)};
    begin_sums<Out>(p, all);
    int64_t rows = p.rows;
    Sums sums = all;
    for (; rows >= kRowsAtOnce; rows -= kRowsAtOnce) {
      add_some<kWidth, kRowsAtOnce>(part, sums);
    }
    for (; rows >= 2; rows -= 2) {
      add_some<kWidth, 2>(part, sums);
    }
    if (rows == 1) {
      add_some<kWidth, 1>(part, sums);
    }
    end_sums<kWidth, Out>(p, all);
  }
}

template <typename Out, typename T>
XLA_FOR_AVX512 void multiply_by_avx512(const RowProduct& p, const FloatRows& a, int64_t begin, int64_t end) {
  multiply_columns<16, Out, T>(p, a, begin, end);
}

template <typename Out, typename T>
XLA_FOR_AVX2 void multiply_by_avx2(const RowProduct& p, const FloatRows& a, int64_t begin, int64_t end) {
  multiply_columns<8, Out, T>(p, a, begin, end);
}

template <typename Out, typename T>
void share_columns(const RowProduct& p) {
  constexpr int64_t kUnit = 16; // columns: a cache line of out
  auto multiply = has_avx512() ? multiply_by_avx512<Out, T> : multiply_by_avx2<Out, T>;
  const int64_t numbers = std::max<int64_t>(1, p.inner * kUnit);
  const int64_t grain = std::max<int64_t>(1, kNumbersPerThread / numbers);
  const int64_t units = (p.columns + kUnit - 1) / kUnit;
  const FloatRows a(static_cast<const Out*>(p.a), p.rows, p.inner);
  share_out(
      units, grain, units / grain, [&](int64_t begin, int64_t end) { multiply(p, a, begin * kUnit, std::min(p.columns, end * kUnit)); });
}

template <typename T>
void multiply_rows_of(const RowProduct& p) {
  p.b_dtype == DType::I8 ? share_columns<T, int8_t>(p) : share_columns<T, T>(p);
}

} // namespace

bool can_multiply_rows() {
  return has_avx2();
}

void multiply_rows(const RowProduct& p) {
  if (p.rows == 0 || p.columns == 0) {
    return;
  }
  p.dtype == DType::F32       ? multiply_rows_of<float>(p)
      : p.dtype == DType::F16 ? multiply_rows_of<c10::Half>(p)
                              : multiply_rows_of<c10::BFloat16>(p);
}

#else

bool can_multiply_rows() {
  return false;
}

void multiply_rows(const RowProduct& /*product*/) {
  XLA_ASSERT(false, "no code for this processor");
}

#endif

} // namespace torch_xla::cpu
