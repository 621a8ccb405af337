// A task goes over the keys of one head, block by block: it packs a block once for all queries of the heads that share it.
#include "engine/cpu/few_rows/many_queries.h"

#include <ATen/Context.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/few_rows/running_softmax.h"
#include "engine/cpu/few_rows/sights.h"
#include "engine/cpu/few_rows/vectors.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {

#if defined(__x86_64__)
namespace {

constexpr int64_t kWidth = 16;
constexpr int64_t kKeysAtOnce = 32; // the last block is filled up to a multiple
constexpr int64_t kMaxRows = 1024; // queries of a task: their results stay in the second cache

template <typename T>
constexpr bool kInPairs = sizeof(T) == 2; // oneDNN reads second operands of 16 bits by pairs of rows

// c[m, n] = or += a[m, k] * b[k, n], b without gaps.
template <typename T>
void multiply(int64_t m, int64_t n, int64_t k, const T* a, int64_t row_of_a, const T* b, float* c, bool adds) {
  at::native::cpublas::brgemm(m, n, k, row_of_a, n, n, adds, a, b, c, kInPairs<T>);
}

struct Keys {
  int64_t from, count;

  int64_t width() const { // with those that fill it up
    return (count + kKeysAtOnce - 1) / kKeysAtOnce * kKeysAtOnce;
  }
};

// What a task computes: the queries [begin, end) of the heads of a group.
struct Part {
  const Queries& q;
  int64_t batch, key_head, begin, end;

  int64_t heads() const {
    return q.heads / q.key_heads;
  }
  int64_t first_head() const {
    return key_head * heads();
  }
  int64_t offset(const Queries::Strides& strides, int64_t head, int64_t row) const {
    return batch * strides[0] + (first_head() + head) * strides[1] + row * strides[2];
  }
  template <typename T>
  const T* keys(const void* of, const Queries::Strides& strides, int64_t from) const {
    return static_cast<const T*>(of) + batch * strides[0] + key_head * strides[1] + from * strides[2];
  }
  template <typename T>
  const T* mask(int64_t head, int64_t row, int64_t key) const {
    const auto& s = q.mask_strides;
    return static_cast<const T*>(q.mask) + batch * s[0] + (first_head() + head) * s[1] + row * s[2] + key * s[3];
  }
};

template <typename T>
struct Memory {
  std::vector<T> key, value, weights;
  std::vector<float> scores, total, top, sum;

  Memory(int64_t rows, int64_t size)
      : key(static_cast<size_t>(kKeys * size)),
        value(key.size()),
        weights(kRows * kKeys),
        scores(kRows * kKeys),
        total(static_cast<size_t>(rows * size)),
        top(static_cast<size_t>(rows)),
        sum(top.size()) {}
};

// Words of 4 bytes: [keys, size] -> [size, width of the keys], with zeros beyond them. `stride`: bytes between keys.
XLA_FOR_AVX512 void transpose_words(uint32_t* to, const void* from, int64_t stride, const Keys& keys, int64_t size) {
  const __m512i places = _mm512_mullo_epi32(
      _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(static_cast<int>(stride)));
  const int64_t width = keys.width();
  for (int64_t j = 0; j < width; j += kWidth) {
    const auto which = static_cast<__mmask16>((1U << std::clamp<int64_t>(keys.count - j, 0, kWidth)) - 1);
    const char* row = static_cast<const char*>(from) + j * stride;
    for (int64_t e = 0; e < size; ++e) {
      const __m512i words = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), which, places, row + e * 4, 1);
      _mm512_storeu_si512(to + e * width + j, words);
    }
  }
}

// In pairs of rows for 16 bits; zeros beyond the keys.
template <typename T>
XLA_FOR_AVX512 void pack_values(T* to, const T* from, int64_t stride, const Keys& keys, int64_t size) {
  auto* out = reinterpret_cast<uint32_t*>(to);
  const auto* in = reinterpret_cast<const Bits<T>*>(from);
  constexpr int64_t kStep = kInPairs<T> ? 2 : 1;
  for (int64_t j = 0; j < keys.width(); j += kStep, out += size) {
    const Bits<T>* first = in + j * stride;
    if (j + kStep <= keys.count && kInPairs<T>) {
      const Bits<T>* second = first + stride;
      for (int64_t e = 0; e < size; ++e) {
        out[e] = first[e] | static_cast<uint32_t>(second[e]) << 16;
      }
    } else if (j < keys.count) {
      std::copy(first, first + size, out);
    } else {
      std::fill(out, out + size, 0U);
    }
  }
}

// Scales the scores of a row, masks them, and turns them into weights.
template <typename T>
XLA_INLINE void weigh(
    const Part& part, Memory<T>& memory, int64_t index, int64_t width, float* scores, T* weights, int64_t visible, const T* mask) {
  const auto r = static_cast<size_t>(index);
  const auto scale = static_cast<float>(part.q.scale);
  for (int64_t j = 0; j < width; ++j) {
    scores[j] *= scale;
  }
  if (mask) {
    add_mask<kWidth>(scores, mask, part.q.mask_strides[3], visible);
  }
  std::fill(scores + visible, scores + width, kHidden);
  weigh_scores<kWidth>(scores, weights, width, memory.top[r], memory.sum[r], memory.total.data() + index * part.q.size, part.q.size);
}

// A block of queries goes over the packed keys. `index`: of its first row in the task's results.
template <typename T>
XLA_FOR_AVX512 void add_keys(const Part& part, Memory<T>& memory, int64_t head, int64_t row, const Keys& keys, int64_t index, bool masks) {
  const Queries& q = part.q;
  const int64_t rows = std::min(kRows, part.end - row);
  const int64_t width = keys.width();
  const T* query = static_cast<const T*>(q.query) + part.offset(q.query_strides, head, row);
  multiply(rows, width, q.size, query, q.query_strides[2], memory.key.data(), memory.scores.data(), false);
  for (int64_t m = 0; m < rows; ++m) {
    const int64_t visible = q.is_causal ? std::clamp<int64_t>(row + m + 1 - keys.from, 0, keys.count) : keys.count;
    const T* mask = masks ? part.mask<T>(head, row + m, keys.from) : nullptr;
    weigh(part, memory, index + m, width, memory.scores.data() + m * width, memory.weights.data() + m * width, visible, mask);
  }
  multiply(rows, q.size, width, memory.weights.data(), width, memory.value.data(), memory.total.data() + index * q.size, true);
}

template <typename T>
void pack(const Part& part, Memory<T>& memory, const Keys& keys) {
  const Queries& q = part.q;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  const T* key = part.keys<T>(q.key, q.key_strides, keys.from);
  transpose_words(reinterpret_cast<uint32_t*>(memory.key.data()), key, q.key_strides[2] * kBytes, keys, q.size * kBytes / 4);
  pack_values(memory.value.data(), part.keys<T>(q.value, q.value_strides, keys.from), q.value_strides[2], keys, q.size);
}

template <typename T>
XLA_FOR_AVX512 void write_results(const Part& part, Memory<T>& memory) {
  const Queries& q = part.q;
  for (int64_t head = 0, index = 0; head < part.heads(); ++head) {
    for (int64_t row = part.begin; row < part.end; ++row, ++index) {
      const auto r = static_cast<size_t>(index);
      T* out = static_cast<T*>(q.out) + part.offset(q.out_strides, head, row);
      float& logsumexp = q.logsumexp[part.offset(q.sum_strides, head, row)];
      end_row<kWidth>(memory.top[r], memory.sum[r], memory.total.data() + index * q.size, q.size, out, logsumexp);
    }
  }
}

template <typename T>
void attend_part(const Part& part, const Sights& sights, Memory<T>& memory) {
  std::fill(memory.total.begin(), memory.total.end(), 0.0f);
  std::fill(memory.sum.begin(), memory.sum.end(), 0.0f);
  std::fill(memory.top.begin(), memory.top.end(), kHidden);
  for (int64_t from = 0; from < part.q.keys; from += kKeys) {
    const Keys keys{from, std::min(kKeys, part.q.keys - from)};
    bool is_packed = false;
    for (int64_t head = 0; head < part.heads(); ++head) {
      for (int64_t row = part.begin; row < part.end; row += kRows) {
        const Sight sight = sights.get(part.batch, part.first_head() + head, row, from);
        if (sight == Sight::kNone || (part.q.is_causal && from >= row + kRows)) {
          continue;
        }
        if (!std::exchange(is_packed, true)) {
          pack(part, memory, keys);
        }
        add_keys(part, memory, head, row, keys, head * (part.end - part.begin) + row - part.begin, sight == Sight::kSome);
      }
    }
  }
  write_results(part, memory);
}

template <typename T>
void share_parts(const Queries& q) {
  const int64_t heads = q.heads / q.key_heads;
  const int64_t length = std::max(kMaxRows / heads / kRows, int64_t{1}) * kRows;
  const int64_t parts = (q.queries + length - 1) / length;
  const int64_t work = 2 * q.batch * q.heads * q.queries * q.keys * q.size / kProductsPerThread;
  Sights sights(q);
  sights.look<T>(q);
  share_out(q.batch * q.key_heads * parts, 1, work, [&](int64_t begin, int64_t end) {
    Memory<T> memory(heads * std::min(length, q.queries), q.size);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % parts * length;
      const int64_t group = i / parts;
      attend_part(Part{q, group / q.key_heads, group % q.key_heads, first, std::min(first + length, q.queries)}, sights, memory);
    }
  });
}

} // namespace

bool can_attend_by_blocks(DType dtype) {
  static const bool has_pairs = __builtin_cpu_supports("avx512bf16") && !at::native::cpublas::could_pack(at::kBFloat16);
  return has_avx512() && at::globalContext().userEnabledMkldnn() && (dtype == DType::F32 || (dtype == DType::BF16 && has_pairs));
}

void attend_by_blocks(const Queries& q) {
  q.dtype == DType::F32 ? share_parts<float>(q) : share_parts<c10::BFloat16>(q);
}

#else

bool can_attend_by_blocks(DType /*dtype*/) {
  return false;
}

void attend_by_blocks(const Queries& /*queries*/) {
  XLA_ASSERT(false, "no code for this processor");
}

#endif

} // namespace torch_xla::cpu
