// The queries of the heads that share keys go over them together, block by block, with a running softmax.
#include "engine/cpu/few_rows/few_queries.h"

#include <algorithm>
#include <vector>

#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/few_rows/running_softmax.h"
#include "engine/cpu/few_rows/vectors.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {

#if defined(__x86_64__)
namespace {

constexpr int64_t kKeys = 64; // of a block
constexpr int64_t kRowsAtOnce = 4;

// The queries of a group of heads, a row each, and their results so far.
struct Rows {
  int64_t count, size;
  std::vector<float> query, total; // [count, size]
  std::vector<float> top, sum; // [count]
  std::vector<float> weights; // [count, kKeys]

  Rows(int64_t rows, int64_t numbers)
      : count(rows),
        size(numbers),
        query(static_cast<size_t>(rows * numbers)),
        total(query.size()),
        top(static_cast<size_t>(rows)),
        sum(top.size()),
        weights(static_cast<size_t>(rows * kKeys)) {}
};

// One group of heads.
template <typename T>
struct Group {
  const Queries& q;
  int64_t batch, key_head;

  int64_t rows() const {
    return q.heads / q.key_heads * q.queries;
  }
  int64_t head(int64_t row) const {
    return key_head * (q.heads / q.key_heads) + row / q.queries;
  }
  int64_t offset(const Queries::Strides& strides, int64_t row) const {
    return batch * strides[0] + head(row) * strides[1] + row % q.queries * strides[2];
  }
  const T* keys(const void* of, const Queries::Strides& strides, int64_t from) const {
    return static_cast<const T*>(of) + batch * strides[0] + key_head * strides[1] + from * strides[2];
  }
  const T* mask(int64_t row) const {
    const auto& s = q.mask_strides;
    return static_cast<const T*>(q.mask) + batch * s[0] + head(row) * s[1] + row % q.queries * s[2];
  }
  bool is_hidden(int64_t row, int64_t key) const {
    return static_cast<float>(mask(row)[key * q.mask_strides[3]]) == kHidden;
  }
  // Widens [from, to) of the keys that are seen by some row.
  void widen(int64_t row, int64_t& from, int64_t& to) const {
    for (int64_t key = 0; key < from; ++key) {
      from = is_hidden(row, key) ? from : key;
    }
    for (int64_t key = q.keys; key > to; --key) {
      to = is_hidden(row, key - 1) ? to : key;
    }
  }
};

// weights = scale * query * key, for kRows rows and up to kWidth keys; hidden beyond them.
template <int64_t kWidth, int64_t kRows, typename T>
XLA_INLINE void score_keys(const Group<T>& group, const float* query, const T* key, int64_t keys, float* weights) {
  const int64_t size = group.q.size;
  Vector<kWidth> sums[kRows][kWidth] = {};
  for (int64_t j = 0; j < keys; ++j) {
    const T* numbers = key + j * group.q.key_strides[2];
    Vector<kWidth> dots[kRows] = {};
    int64_t e = 0;
    for (; e + kWidth <= size; e += kWidth) {
      Vector<kWidth> k;
      load<kWidth>(k, numbers + e);
      for (int64_t m = 0; m < kRows; ++m) {
        Vector<kWidth> q;
        load<kWidth>(q, query + m * size + e);
        dots[m] += q * k;
      }
    }
    for (int64_t m = 0; m < kRows; ++m) {
      for (int64_t rest = e; rest < size; ++rest) {
        dots[m][0] += query[m * size + rest] * static_cast<float>(numbers[rest]);
      }
      sums[m][j] = dots[m];
    }
  }
  const float scale = static_cast<float>(group.q.scale);
  for (int64_t m = 0; m < kRows; ++m) {
    Vector<kWidth> scores;
    sum_each<kWidth>(scores, sums[m]);
    scores *= scale;
    store<kWidth>(weights + m * kKeys, scores);
    std::fill(weights + m * kKeys + keys, weights + m * kKeys + kWidth, kHidden);
  }
}

// Masks the scores of a row, and turns them into weights.
template <int64_t kWidth, typename T>
XLA_INLINE void weigh(const Group<T>& group, Rows& rows, int64_t row, int64_t from, int64_t keys) {
  const auto r = static_cast<size_t>(row);
  float* weights = rows.weights.data() + row * kKeys;
  if (group.q.mask) {
    add_mask<kWidth>(weights, group.mask(row) + from * group.q.mask_strides[3], group.q.mask_strides[3], keys);
  }
  weigh_scores<kWidth>(weights, weights, keys, rows.top[r], rows.sum[r], rows.total.data() + row * rows.size, rows.size);
}

// Adds weights times kVectors vectors of each value to kRows rows.
template <int64_t kWidth, int64_t kRows, int64_t kVectors, typename T>
XLA_INLINE void add_some_values(const Group<T>& group, float* total, const float* weights, const T* value, int64_t keys) {
  Vector<kWidth> sums[kRows][kVectors];
  for (int64_t m = 0; m < kRows; ++m) {
    for (int64_t i = 0; i < kVectors; ++i) {
      load<kWidth>(sums[m][i], total + m * group.q.size + i * kWidth);
    }
  }
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t i = 0; i < kVectors; ++i) {
      Vector<kWidth> v;
      load<kWidth>(v, value + j * group.q.value_strides[2] + i * kWidth);
      for (int64_t m = 0; m < kRows; ++m) {
        sums[m][i] += weights[m * kKeys + j] * v;
      }
    }
  }
  for (int64_t m = 0; m < kRows; ++m) {
    for (int64_t i = 0; i < kVectors; ++i) {
      store<kWidth>(total + m * group.q.size + i * kWidth, sums[m][i]);
    }
  }
}

template <int64_t kWidth, int64_t kRows, typename T>
XLA_INLINE void add_values(const Group<T>& group, float* total, const float* weights, const T* value, int64_t keys) {
  constexpr int64_t kVectors = kWidth == 16 ? 4 : 2; // what the registers hold
  const int64_t size = group.q.size;
  int64_t e = 0;
  for (; e + kVectors * kWidth <= size; e += kVectors * kWidth) {
    add_some_values<kWidth, kRows, kVectors>(group, total + e, weights, value + e, keys);
  }
  for (; e + kWidth <= size; e += kWidth) {
    add_some_values<kWidth, kRows, 1>(group, total + e, weights, value + e, keys);
  }
  for (; e < size; ++e) {
    for (int64_t m = 0; m < kRows; ++m) {
      for (int64_t j = 0; j < keys; ++j) {
        total[m * size + e] += weights[m * kKeys + j] * static_cast<float>(value[j * group.q.value_strides[2] + e]);
      }
    }
  }
}

// kRows rows go over a block of keys.
template <int64_t kWidth, int64_t kRows, typename T>
XLA_INLINE int64_t add_keys(const Group<T>& group, Rows& rows, int64_t row, int64_t from, int64_t keys) {
  float* weights = rows.weights.data() + row * kKeys;
  const T* key = group.keys(group.q.key, group.q.key_strides, from);
  for (int64_t j = 0; j < keys; j += kWidth) {
    score_keys<kWidth, kRows>(
        group, rows.query.data() + row * rows.size, key + j * group.q.key_strides[2], std::min(kWidth, keys - j), weights + j);
  }
  for (int64_t m = 0; m < kRows; ++m) {
    weigh<kWidth>(group, rows, row + m, from, keys);
  }
  add_values<kWidth, kRows>(
      group, rows.total.data() + row * rows.size, weights, group.keys(group.q.value, group.q.value_strides, from), keys);
  return kRows;
}

template <int64_t kWidth, typename T>
XLA_INLINE void begin_rows(const Group<T>& group, Rows& rows, int64_t& from, int64_t& to) {
  from = group.q.mask ? group.q.keys : 0;
  to = group.q.mask ? 0 : group.q.keys;
  for (int64_t row = 0; row < rows.count; ++row) {
    const T* query = static_cast<const T*>(group.q.query) + group.offset(group.q.query_strides, row);
    convert<kWidth>(rows.query.data() + row * rows.size, query, rows.size);
    if (group.q.mask && (row == 0 || group.mask(row) != group.mask(row - 1))) {
      group.widen(row, from, to);
    }
  }
  std::fill(rows.total.begin(), rows.total.end(), 0.0f);
  std::fill(rows.sum.begin(), rows.sum.end(), 0.0f);
  std::fill(rows.top.begin(), rows.top.end(), kHidden);
}

template <int64_t kWidth, typename T>
XLA_INLINE void end_rows(const Group<T>& group, Rows& rows) {
  for (int64_t row = 0; row < rows.count; ++row) {
    const auto r = static_cast<size_t>(row);
    T* out = static_cast<T*>(group.q.out) + group.offset(group.q.out_strides, row);
    float& logsumexp = group.q.logsumexp[group.offset(group.q.sum_strides, row)];
    end_row<kWidth>(rows.top[r], rows.sum[r], rows.total.data() + row * rows.size, rows.size, out, logsumexp);
  }
}

template <int64_t kWidth, typename T>
XLA_INLINE void attend_groups(const Queries& q, int64_t begin, int64_t end) {
  Rows rows(q.heads / q.key_heads * q.queries, q.size);
  for (int64_t i = begin; i < end; ++i) {
    const Group<T> group{q, i / q.key_heads, i % q.key_heads};
    int64_t first = 0;
    int64_t last = 0;
    begin_rows<kWidth>(group, rows, first, last);
    for (int64_t from = first; from < last; from += kKeys) {
      const int64_t keys = std::min(kKeys, last - from);
      int64_t row = 0;
      while (row + kRowsAtOnce <= rows.count) {
        row += add_keys<kWidth, kRowsAtOnce>(group, rows, row, from, keys);
      }
      while (row + 2 <= rows.count) {
        row += add_keys<kWidth, 2>(group, rows, row, from, keys);
      }
      if (row < rows.count) {
        add_keys<kWidth, 1>(group, rows, row, from, keys);
      }
    }
    end_rows<kWidth>(group, rows);
  }
}

template <typename T>
XLA_FOR_AVX512 void attend_by_avx512(const Queries& q, int64_t begin, int64_t end) {
  attend_groups<16, T>(q, begin, end);
}

template <typename T>
XLA_FOR_AVX2 void attend_by_avx2(const Queries& q, int64_t begin, int64_t end) {
  attend_groups<8, T>(q, begin, end);
}

template <typename T>
void share_groups(const Queries& q) {
  auto attend = has_avx512() ? attend_by_avx512<T> : attend_by_avx2<T>;
  const int64_t groups = q.batch * q.key_heads;
  const int64_t numbers = std::max<int64_t>(1, 2 * q.keys * q.size);
  const int64_t grain = std::max<int64_t>(1, kNumbersPerThread / numbers);
  share_out(groups, grain, groups / grain, [&](int64_t begin, int64_t end) { attend(q, begin, end); });
}

} // namespace

bool can_attend() {
  return has_avx2();
}

void attend(const Queries& q) {
  q.dtype == DType::F32 ? share_groups<float>(q) : q.dtype == DType::F16 ? share_groups<c10::Half>(q) : share_groups<c10::BFloat16>(q);
}

#else

bool can_attend() {
  return false;
}

void attend(const Queries& /*queries*/) {
  XLA_ASSERT(false, "no code for this processor");
}

#endif

} // namespace torch_xla::cpu
