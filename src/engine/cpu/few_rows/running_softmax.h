// The softmax of attention that goes over keys block by block: a row has its largest score, sum and total so far.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/cpu/few_rows/vectors.h"

#if defined(__x86_64__)
namespace torch_xla::cpu {

constexpr float kHidden = -std::numeric_limits<float>::infinity(); // score of a key that the row does not see

// Adds the mask of a row; `stride` in elements.
template <int64_t kWidth, typename T>
XLA_INLINE void add_mask(float* scores, const T* mask, int64_t stride, int64_t keys) {
  int64_t j = 0;
  for (; stride == 1 && j + kWidth <= keys; j += kWidth) {
    Vector<kWidth> added;
    Vector<kWidth> score;
    load<kWidth>(added, mask + j);
    load<kWidth>(score, scores + j);
    score += added;
    store<kWidth>(scores + j, score);
  }
  for (; j < keys; ++j) {
    scores[j] += static_cast<float>(mask[j * stride]);
  }
}

// Turns the scores of a row into weights, and scales its sum and total to the new largest score. The last of the scores' vectors is filled
// up with kHidden. `weights` may be `scores`.
template <int64_t kWidth, typename T>
XLA_INLINE void weigh_scores(const float* scores, T* weights, int64_t keys, float& row_top, float& row_sum, float* total, int64_t size) {
  Vector<kWidth> tops;
  load<kWidth>(tops, scores);
  for (int64_t j = kWidth; j < keys; j += kWidth) {
    Vector<kWidth> w;
    load<kWidth>(w, scores + j);
    tops = tops > w ? tops : w;
  }
  float top = row_top;
  for (int64_t i = 0; i < kWidth; ++i) {
    top = std::max(top, tops[i]);
  }
  const float base = top == kHidden ? 0 : top;
  Vector<kWidth> sums = {};
  for (int64_t j = 0; j < keys; j += kWidth) {
    Vector<kWidth> w;
    load<kWidth>(w, scores + j);
    w -= base;
    exponentiate<kWidth>(w);
    store<kWidth>(weights + j, w);
    sums += w;
  }
  const float factor = std::exp(row_top - base);
  row_top = top;
  row_sum = row_sum * factor + sum<kWidth>(sums);
  for (int64_t e = 0; factor != 1 && e < size; ++e) {
    total[e] *= factor;
  }
}

// Writes the row's output and logsumexp, 0 where it sees no key. Changes `total`.
template <int64_t kWidth, typename T>
XLA_INLINE void end_row(float top, float sum, float* total, int64_t size, T* out, float& logsumexp) {
  const bool sees = top != kHidden;
  const float factor = sees ? 1 / sum : 0;
  for (int64_t e = 0; e < size; ++e) {
    total[e] *= factor;
  }
  convert<kWidth>(out, total, size);
  logsumexp = sees ? top + std::log(sum) : 0;
}

} // namespace torch_xla::cpu
#endif
