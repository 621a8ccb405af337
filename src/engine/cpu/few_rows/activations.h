// Vectors of 16 numbers of images in direct convolutions: of float32 and bfloat16, in part, through an activation.
#pragma once

#include <algorithm>

#include "engine/cpu/few_rows/direct_convolutions.h"
#include "engine/cpu/few_rows/vectors.h"
#if defined(__x86_64__)

namespace torch_xla::cpu {

constexpr int64_t kImageWidth = 16; // numbers of a vector

inline __mmask16 mask_of(int64_t count) {
  return static_cast<__mmask16>((1U << std::clamp<int64_t>(count, 0, kImageWidth)) - 1);
}

XLA_INLINE XLA_FOR_AVX512 __m512 load(__mmask16 which, const float* from) {
  return _mm512_maskz_loadu_ps(which, from);
}

XLA_INLINE XLA_FOR_AVX512 __m512 load(__mmask16 which, const c10::BFloat16* from) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(which, from)), 16));
}

XLA_INLINE XLA_FOR_AVX512 void store(__mmask16 which, float* to, __m512 v) {
  _mm512_mask_storeu_ps(to, which, v);
}

XLA_INLINE XLA_FOR_AVX512 void store(__mmask16 which, c10::BFloat16* to, __m512 v) {
  HalfWords<kImageWidth> halves;
  round_to_bfloat16<kImageWidth>(halves, v);
  _mm256_mask_storeu_epi16(to, which, reinterpret_cast<__m256i>(halves));
}

// NaN stays, as in those below.
XLA_INLINE XLA_FOR_AVX512 __m512 relu(__m512 v) {
  return _mm512_max_ps(_mm512_setzero_ps(), v);
}

XLA_INLINE XLA_FOR_AVX512 __m512 hardswish(__m512 v) {
  return v * _mm512_min_ps(_mm512_set1_ps(6), relu(v + _mm512_set1_ps(3))) / _mm512_set1_ps(6);
}

XLA_INLINE XLA_FOR_AVX512 __m512 silu(__m512 v) {
  Vector<kImageWidth> e = -_mm512_abs_ps(v);
  exponentiate<kImageWidth>(e);
  const Vector<kImageWidth> ones = Vector<kImageWidth>{} + 1;
  return v * (v < Vector<kImageWidth>{} ? e : ones) / (ones + e);
}

XLA_FOR_AVX512 inline __m512 activate(__m512 v, Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return relu(v);
    case Activation::kHardswish:
      return hardswish(v);
    case Activation::kSilu:
      return silu(v);
    default:
      return v;
  }
}

} // namespace torch_xla::cpu
#endif
