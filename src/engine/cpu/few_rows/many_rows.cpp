// A panel has 64 columns, in the order of the instructions for bfloat16: for each two numbers of a sum, those of all columns side by side.
// It stays in the second-level cache while all rows are multiplied by it.
#include "engine/cpu/few_rows/many_rows.h"

#include <c10/util/BFloat16.h>
#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wuninitialized" // GCC 12's own header
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {

#if defined(__x86_64__)
namespace {

#define XLA_FOR_BF16 __attribute__((target("arch=x86-64-v4,avx512bf16")))

constexpr int64_t kColumns = kPanelColumns;
constexpr int64_t kVectors = 4; // of a panel's row
constexpr int64_t kRowsAtOnce = 6; // what the registers hold
constexpr int64_t kSquare = 16; // of two numbers each

// Two numbers of a sum for each column, in kColumns * inner / 2 words.
using Panel = uint32_t*;

// kRows rows of a times a panel.
struct Tile {
  const c10::BFloat16* a;
  const uint32_t* panel;
  const float* scales; // of the panel's columns
  c10::BFloat16* out;
  int64_t inner, out_stride;
  int64_t columns; // that exist
};

template <int64_t kRows>
XLA_FOR_BF16 void multiply_tile(const Tile& t) {
  __m512 sums[kRows][kVectors];
  for (auto& row : sums) {
    for (auto& sum : row) {
      sum = _mm512_setzero_ps();
    }
  }
  for (int64_t k = 0; k < t.inner; k += 2) {
    __m512bh b[kVectors];
    for (int64_t i = 0; i < kVectors; ++i) {
      b[i] = reinterpret_cast<__m512bh>(_mm512_load_si512(t.panel + k / 2 * kColumns + i * kSquare));
    }
    for (int64_t m = 0; m < kRows; ++m) {
      int32_t pair;
      std::memcpy(&pair, t.a + m * t.inner + k, sizeof(pair));
      const __m512bh a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
      for (int64_t i = 0; i < kVectors; ++i) {
        sums[m][i] = _mm512_dpbf16_ps(sums[m][i], b[i], a);
      }
    }
  }
  for (int64_t m = 0; m < kRows; ++m) {
    for (int64_t i = 0; i < kVectors && i * kSquare < t.columns; ++i) {
      const __m512 scaled = _mm512_mul_ps(sums[m][i], _mm512_loadu_ps(t.scales + i * kSquare));
      const auto mask = static_cast<__mmask16>((uint32_t{1} << std::min(kSquare, t.columns - i * kSquare)) - 1);
      _mm256_mask_storeu_epi16(t.out + m * t.out_stride + i * kSquare, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(scaled)));
    }
  }
}

using MultiplyTile = void (*)(const Tile& t);

template <size_t... kRows>
constexpr std::array<MultiplyTile, sizeof...(kRows)> make_tiles(std::index_sequence<kRows...>) {
  return {multiply_tile<kRows + 1>...};
}
constexpr auto kTiles = make_tiles(std::make_index_sequence<kRowsAtOnce>()); // by rows - 1

// The words of two vectors of float32, of one sum's numbers each, in turn.
XLA_FOR_BF16 inline __m512i pair_up(__m512 first, __m512 second) {
  alignas(64) static constexpr uint16_t kInTurn[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  return _mm512_permutexvar_epi16(_mm512_load_si512(kInTurn), both);
}

// rows[i], word j -> rows[j], word i.
XLA_FOR_BF16 inline void transpose(__m512i (&rows)[kSquare]) {
  __m512i t[kSquare];
  for (int64_t i = 0; i < kSquare; i += 2) {
    t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int64_t i = 0; i < kSquare; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now rows[4 g + c] has, in part p, the words 4 p + c of the rows of group g.
  for (int64_t c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(rows[c], rows[4 + c], 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(rows[c], rows[4 + c], 0xEE);
    const __m512i low23 = _mm512_shuffle_i32x4(rows[8 + c], rows[12 + c], 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(rows[8 + c], rows[12 + c], 0xEE);
    t[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    t[4 + c] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
    t[8 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
  }
  std::copy(std::begin(t), std::end(t), std::begin(rows));
}

// Integers of 8 bits are exact in bfloat16. Columns that do not exist are 0.
XLA_FOR_BF16 void fill_panel(const RowProduct& p, int64_t column, Panel panel) {
  const auto* weight = static_cast<const int8_t*>(p.b) + column * p.b_stride;
  const int64_t columns = std::min(kColumns, p.columns - column);
  int64_t k = 0;
  for (; k + 2 * kSquare <= p.inner; k += 2 * kSquare) {
    for (int64_t n = 0; n < kColumns; n += kSquare) {
      __m512i rows[kSquare];
      for (int64_t i = 0; i < kSquare; ++i) {
        rows[i] = _mm512_setzero_si512();
        if (n + i < columns) {
          const auto* from = reinterpret_cast<const __m128i*>(weight + (n + i) * p.b_stride + k);
          const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from)));
          const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from + 1)));
          rows[i] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
        }
      }
      transpose(rows);
      for (int64_t i = 0; i < kSquare; ++i) {
        _mm512_store_si512(panel + (k / 2 + i) * kColumns + n, rows[i]);
      }
    }
  }
  for (; k < p.inner; k += 2) {
    for (int64_t n = 0; n < kColumns; ++n) {
      c10::BFloat16 pair[2] = {0, 0};
      if (n < columns) {
        pair[0] = weight[n * p.b_stride + k];
        pair[1] = weight[n * p.b_stride + k + 1];
      }
      std::memcpy(panel + k / 2 * kColumns + n, pair, sizeof(pair));
    }
  }
}

// The numbers of one group in the block that is the panel: see int4_rows.cpp. k counts from the group's first.
XLA_FOR_BF16 inline void fill_group(const uint8_t* q, const uint32_t* scales_and_zeros, int64_t group, Panel panel) {
  const __m512 integers = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  __m512 scale[kVectors];
  __m512 zero[kVectors];
  for (int64_t i = 0; i < kVectors; ++i) {
    const __m512i both = _mm512_loadu_si512(scales_and_zeros + i * kSquare);
    scale[i] = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    zero[i] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_srli_epi32(both, 16), 16));
  }
  for (int64_t k = 0; k < group; k += 2) {
    for (int64_t s = 0; s < kVectors / 2; ++s) {
      __m512 low[2];
      __m512 high[2];
      for (int64_t i = 0; i < 2; ++i) {
        const auto* from = reinterpret_cast<const __m128i*>(q + (k + i) * kColumns / 2 + s * kSquare);
        const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(from));
        low[i] = _mm512_fmadd_ps(_mm512_permutexvar_ps(bytes, integers), scale[s], zero[s]); // by the low 4 bits
        high[i] = _mm512_fmadd_ps(_mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), integers), scale[s + 2], zero[s + 2]);
      }
      _mm512_store_si512(panel + k / 2 * kColumns + s * kSquare, pair_up(low[0], low[1]));
      _mm512_store_si512(panel + k / 2 * kColumns + (s + 2) * kSquare, pair_up(high[0], high[1]));
    }
  }
}

XLA_FOR_BF16 void fill_panel(const Int4Product& p, int64_t column, Panel panel) {
  for (int64_t k = 0; k < p.inner; k += p.group) {
    fill_group(
        p.q + (column * p.inner + k * kColumns) / 2,
        static_cast<const uint32_t*>(p.scales_and_zeros) + k / p.group * p.columns + column,
        p.group,
        panel + k / 2 * kColumns);
  }
}

template <typename Product>
void share_panels(const Product& p, const c10::BFloat16* scales) {
  const int64_t panels = (p.columns + kColumns - 1) / kColumns;
  const int64_t worth = p.rows * p.inner * p.columns / kProductsPerThread;
  share_out(panels, 1, worth, [&](int64_t begin, int64_t end) {
    const auto size = static_cast<size_t>(kColumns * p.inner / 2);
    const std::unique_ptr<uint32_t[], decltype(&std::free)> panel(
        static_cast<uint32_t*>(std::aligned_alloc(kColumns, std::max<size_t>(kColumns, size * sizeof(uint32_t)))), &std::free);
    for (int64_t column = begin * kColumns; column < std::min(p.columns, end * kColumns); column += kColumns) {
      float factors[kColumns];
      const int64_t columns = std::min(kColumns, p.columns - column);
      for (int64_t n = 0; n < kColumns; ++n) {
        factors[n] = scales && n < columns ? static_cast<float>(scales[column + n]) : 1;
      }
      fill_panel(p, column, panel.get());
      for (int64_t row = 0; row < p.rows; row += kRowsAtOnce) {
        const Tile tile{
            .a = static_cast<const c10::BFloat16*>(p.a) + row * p.inner,
            .panel = panel.get(),
            .scales = factors,
            .out = static_cast<c10::BFloat16*>(p.out) + row * p.columns + column,
            .inner = p.inner,
            .out_stride = p.columns,
            .columns = columns};
        kTiles[static_cast<size_t>(std::min(kRowsAtOnce, p.rows - row) - 1)](tile);
      }
    }
  });
}

} // namespace

// AMX multiplies faster.
bool can_multiply_panels() {
  static const bool can =
      __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_supports("amx-bf16");
  return can;
}

void multiply_panels(const RowProduct& product) {
  share_panels(product, static_cast<const c10::BFloat16*>(product.scales));
}

void multiply_panels(const Int4Product& product) {
  share_panels(product, nullptr);
}

#else

bool can_multiply_panels() {
  return false;
}

void multiply_panels(const RowProduct& /*product*/) {
  XLA_ASSERT(false, "no code for this processor");
}

void multiply_panels(const Int4Product& /*product*/) {
  XLA_ASSERT(false, "no code for this processor");
}

#endif

} // namespace torch_xla::cpu
