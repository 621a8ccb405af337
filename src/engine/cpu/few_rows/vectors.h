// Vectors of float32 numbers in kernels of our own, for files that are compiled once and choose the instructions at run time. The functions
// are inlined into those that name the processor (XLA_FOR_AVX512, XLA_FOR_AVX2), with vectors of 16 and of 8 numbers.
#pragma once

#include <ATen/Version.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#define XLA_INLINE inline __attribute__((always_inline, target("f16c"))) // into functions with the processor's instructions
#define XLA_FOR_AVX512 __attribute__((target("arch=x86-64-v4")))
#define XLA_FOR_AVX2 __attribute__((target("arch=x86-64-v3")))

namespace torch_xla::cpu {

// As ATen chooses its own kernels, by the processor or ATEN_CPU_CAPABILITY.
inline bool has_avx512() {
  static const bool has = __builtin_cpu_supports("x86-64-v4") && at::get_cpu_capability() == "AVX512";
  return has;
}

inline bool has_avx2() {
  static const bool has = __builtin_cpu_supports("x86-64-v3");
  return has;
}

template <typename T, int64_t kWidth>
struct VectorOf {
  using type [[gnu::vector_size(kWidth * sizeof(T))]] = T;
};
template <int64_t kWidth>
using Vector = typename VectorOf<float, kWidth>::type;
template <int64_t kWidth>
using Words = typename VectorOf<uint32_t, kWidth>::type;
template <int64_t kWidth>
using Integers = typename VectorOf<int32_t, kWidth>::type;
template <int64_t kWidth>
using HalfWords = typename VectorOf<uint16_t, kWidth>::type;

// The float32 numbers with these bits.
template <int64_t kWidth>
XLA_INLINE void set_bits(Vector<kWidth>& v, const Words<kWidth>& bits) {
  std::memcpy(&v, &bits, sizeof(v));
}

// ---- From memory ----

// One instruction that reads and converts kWidth numbers: GCC makes several of a conversion of vectors.
#define XLA_LOAD_BY(instruction, to, from) \
  __asm__(instruction " %1, %0" : "=v"(to) : "m"(*reinterpret_cast<const char(*)[kWidth * sizeof(*(from))]>(from)))

template <int64_t kWidth>
XLA_INLINE void load(Vector<kWidth>& v, const float* from) {
  std::memcpy(&v, from, sizeof(v));
}

template <int64_t kWidth>
XLA_INLINE void load(Vector<kWidth>& v, const c10::BFloat16* from) {
  Words<kWidth> halves;
  XLA_LOAD_BY("vpmovzxwd", halves, from);
  set_bits<kWidth>(v, halves << 16);
}

template <int64_t kWidth>
XLA_INLINE void load(Vector<kWidth>& v, const c10::Half* from) {
  XLA_LOAD_BY("vcvtph2ps", v, from);
}

template <int64_t kWidth>
XLA_INLINE void load(Integers<kWidth>& v, const uint8_t* from) {
  XLA_LOAD_BY("vpmovzxbd", v, from);
}

template <int64_t kWidth>
XLA_INLINE void load(Vector<kWidth>& v, const int8_t* from) {
  Integers<kWidth> integers;
  XLA_LOAD_BY("vpmovsxbd", integers, from);
  v = __builtin_convertvector(integers, Vector<kWidth>);
}

// Reads n numbers, fewer than a vector; the others are 0.
template <int64_t kWidth, typename T>
XLA_INLINE void load_some(Vector<kWidth>& v, const T* from, int64_t n) {
  T numbers[kWidth] = {};
  std::memcpy(numbers, from, static_cast<size_t>(n) * sizeof(T));
  load<kWidth>(v, numbers);
}

// ---- To memory, rounded to the nearest, to even ----

template <int64_t kWidth>
XLA_INLINE void store(float* to, const Vector<kWidth>& v) {
  std::memcpy(to, &v, sizeof(v));
}

// As the bits of bfloat16.
template <int64_t kWidth>
XLA_INLINE void round_to_bfloat16(HalfWords<kWidth>& halves, const Vector<kWidth>& v) {
  constexpr uint32_t kNan = 0x7FC0;
  Words<kWidth> bits;
  std::memcpy(&bits, &v, sizeof(bits));
  const Words<kWidth> rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const Words<kWidth> zeros = {};
  const Words<kWidth> upper = v == v ? rounded : zeros + kNan;
  halves = __builtin_convertvector(upper, HalfWords<kWidth>);
}

template <int64_t kWidth>
XLA_INLINE void store(c10::BFloat16* to, const Vector<kWidth>& v) {
  HalfWords<kWidth> halves;
  round_to_bfloat16<kWidth>(halves, v);
  std::memcpy(to, &halves, sizeof(halves));
}

template <int64_t kWidth>
XLA_INLINE void store(c10::Half* to, const Vector<kWidth>& v) {
  for (int64_t i = 0; i < kWidth; i += 8) {
    Vector<8> part;
    std::memcpy(&part, reinterpret_cast<const float*>(&v) + i, sizeof(part));
    const __m128i halves = _mm256_cvtps_ph(reinterpret_cast<__m256>(part), _MM_FROUND_TO_NEAREST_INT);
    std::memcpy(to + i, &halves, sizeof(halves));
  }
}

// Converts n numbers; the last ones, fewer than a vector, one by one.
template <int64_t kWidth, typename To, typename From>
XLA_INLINE void convert(To* to, const From* from, int64_t n) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    Vector<kWidth> v;
    load<kWidth>(v, from + i);
    store<kWidth>(to + i, v);
  }
  for (; i < n; ++i) {
    to[i] = static_cast<To>(static_cast<float>(from[i]));
  }
}

// Rows in float32, each followed by zeros up to a whole number of the longest vectors.
class FloatRows {
 public:
  template <typename T>
  FloatRows(const T* from, int64_t rows, int64_t length) : stride_((length + kLongest - 1) / kLongest * kLongest) {
    if (std::is_same_v<T, float> && stride_ == length) {
      rows_ = reinterpret_cast<const float*>(from);
      return;
    }
    copy_.reset(new float[static_cast<size_t>(rows * stride_)]);
    copy(copy_.get(), from, rows, length);
    rows_ = copy_.get();
  }
  const float* rows() const {
    return rows_;
  }
  int64_t stride() const {
    return stride_;
  }

 private:
  static constexpr int64_t kLongest = 16;

  template <typename T>
  XLA_FOR_AVX2 void copy(float* to, const T* from, int64_t rows, int64_t length) const {
    for (int64_t row = 0; row < rows; ++row, to += stride_, from += length) {
      convert<8>(to, from, length);
      std::fill(to + length, to + stride_, 0.0f);
    }
  }

  std::unique_ptr<float[]> copy_;
  const float* rows_;
  const int64_t stride_;
};

// ---- Between vectors ----

// The numbers at even and at odd places of two vectors.
template <int64_t kWidth>
XLA_INLINE void split_pairs(Vector<kWidth>& first, Vector<kWidth>& second, const Vector<kWidth>& low, const Vector<kWidth>& high) {
  if constexpr (kWidth == 16) {
    first = __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    second = __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  } else {
    first = __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14);
    second = __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15);
  }
}

// e to the power of numbers of at most 88, to about one unit of the last place; 0 below the smallest normal number.
template <int64_t kWidth>
XLA_INLINE void exponentiate(Vector<kWidth>& x) {
  constexpr float kLowest = -87.33654f;
  constexpr float kWhole = 12582912; // 3 * 2^22: what is added to it becomes whole
  const Vector<kWidth> zeros = {};
  const Vector<kWidth> clamped = x < kLowest ? zeros + kLowest : x;
  const Vector<kWidth> shifted = clamped * 1.44269504f + kWhole;
  const Vector<kWidth> n = shifted - kWhole;
  const Vector<kWidth> r = (clamped - n * 0.693145752f) - n * 1.42860677e-6f;
  Vector<kWidth> e = r * 1.98756915e-4f + 1.39819995e-3f;
  for (float c : {8.33345205e-3f, 4.16657962e-2f, 1.66666657e-1f, 0.5f}) {
    e = e * r + c;
  }
  e = e * (r * r) + r + 1;
  Words<kWidth> power;
  std::memcpy(&power, &shifted, sizeof(power));
  Vector<kWidth> scale;
  set_bits<kWidth>(scale, (power + 127) << 23); // the low bits of kWhole are 0
  x = x < kLowest ? zeros : e * scale;
}

// ---- Sums ----

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

// The sums of kWidth vectors, each in its place. Changes the vectors.
template <int64_t kWidth>
XLA_INLINE void sum_each(Vector<kWidth>& sums, Vector<kWidth>* vectors) {
  for (int64_t n = kWidth / 2; n > 0; n /= 2) {
    for (int64_t i = 0; i < n; ++i) {
      Vector<kWidth> even;
      Vector<kWidth> odd;
      split_pairs<kWidth>(even, odd, vectors[2 * i], vectors[2 * i + 1]);
      vectors[i] = even + odd;
    }
  }
  sums = vectors[0];
}

} // namespace torch_xla::cpu
#endif
