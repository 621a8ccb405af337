// Times one product and one copy.
#include "engine/cpu/library/speed.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstring>

#include "core/metrics.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {
namespace {

constexpr int kTries = 8;
constexpr int64_t kExtent = 160; // of a product: 4 million multiplications, operands of 100 KB
constexpr int64_t kNumbers = int64_t{1} << 19; // to copy: 2 MB

template <typename Body>
double best_ns(Body body) {
  body(); // the first call finds nothing in the caches
  int64_t best = INT64_MAX;
  for (int i = 0; i < kTries; ++i) {
    const int64_t start = metrics::now_ns();
    body();
    best = std::min(best, metrics::now_ns() - start);
  }
  return static_cast<double>(std::max<int64_t>(best, 1));
}

} // namespace

Speeds measure_speeds() {
  c10::InferenceMode inference;
  const OneThread one_thread;
  Speeds speeds;
  const at::Tensor a = at::ones({kExtent, kExtent});
  at::Tensor product = at::empty({kExtent, kExtent});
  speeds.products = static_cast<double>(kExtent * kExtent * kExtent) / best_ns([&] { at::mm_out(product, a, a); });
  const at::Tensor from = at::ones({kNumbers});
  const at::Tensor to = at::empty({kNumbers});
  const size_t bytes = from.nbytes();
  speeds.numbers = kNumbers / best_ns([&] { std::memcpy(to.data_ptr(), from.const_data_ptr(), bytes); });
  return speeds;
}

} // namespace torch_xla::cpu
