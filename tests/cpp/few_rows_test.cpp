// Products of a few rows, with matrices of all types, and attention of a few queries, against float64.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_convert_weight_to_int4pack_for_cpu.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/cpu/cost.h"
#include "engine/cpu/few_rows/few_queries.h"
#include "engine/cpu/few_rows/few_rows.h"
#include "engine/cpu/few_rows/int4_rows.h"
#include "engine/cpu/few_rows/many_rows.h"
#include "engine/cpu/library/attention.h"
#include "engine/cpu/library/products.h"
#include "engine/cpu/library/quantized.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {
namespace {

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kHalf, at::kBFloat16};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double epsilon(at::ScalarType dtype) {
  return dtype == at::kFloat ? std::ldexp(1, -23) : dtype == at::kHalf ? std::ldexp(1, -10) : std::ldexp(1, -7);
}

at::Tensor as_double(const at::Tensor& t) {
  return t.to(at::kDouble);
}

// One rounding to the type, and those of float32 sums: `magnitude` is the sum of the products' absolute values.
void expect_near(const at::Tensor& got, const at::Tensor& exact, const at::Tensor& magnitude, double roundings) {
  const at::Tensor bound = exact.abs() * epsilon(got.scalar_type()) + magnitude * roundings * epsilon(at::kFloat) + 1e-7;
  EXPECT_TRUE(((as_double(got) - exact).abs() <= bound).all().item<bool>())
      << got.scalar_type() << " " << got.sizes() << ": " << ((as_double(got) - exact).abs() / bound).max().item<double>();
}

class FewRows : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_multiply_rows()) {
      GTEST_SKIP() << "there is no code for this processor";
    }
    at::manual_seed(0);
  }
  c10::InferenceMode inference_;
};

// a times weight, [inner, columns], and its bound; the kernel gives the same on one thread.
template <typename Kernel>
void check_product(const at::Tensor& a, const at::Tensor& weight, const at::Tensor& out, Kernel kernel) {
  kernel(out.fill_(NAN));
  const at::Tensor exact = at::mm(as_double(a), as_double(weight));
  expect_near(out, exact, at::mm(as_double(a).abs(), as_double(weight).abs()), 8 + std::sqrt(static_cast<double>(a.size(1))));
  const at::Tensor alone = at::empty_like(out);
  const OneThread one_thread;
  kernel(alone);
  EXPECT_TRUE(at::equal(alone, out));
}

TEST_F(FewRows, HaveTheSumsOfFloat32) {
  for (at::ScalarType dtype : kDtypes) {
    for (auto [k, n] : {std::pair{1, 70}, {64, 1}, {77, 130}, {300, 550}, {1031, 33}, {4096, 20}, {5000, 2}}) {
      for (int64_t rows = 1; rows <= kMaxFewRows; ++rows) {
        const at::Tensor a = at::randn({rows, k}).to(dtype);
        const at::Tensor weight = at::randn({k, n}).to(dtype);
        for (const at::Tensor& w : {weight, weight.t().contiguous().t()}) {
          check_product(a, w, at::empty({rows, n}, dtype), [&](const at::Tensor& out) { multiply_few_rows({a, w}, {out}); });
        }
      }
    }
  }
}

TEST_F(FewRows, AddABiasBeforeTheyRound) {
  for (at::ScalarType dtype : kDtypes) {
    const at::Tensor a = at::randn({3, 100}).to(dtype), weight = at::randn({100, 70}).to(dtype);
    for (const at::Tensor& bias : {at::randn({70}), at::randn({3, 1}), at::randn({1, 70}), at::randn({70, 3}).t(), at::randn({})}) {
      const at::Tensor added = bias.to(dtype), out = at::empty({3, 70}, dtype);
      multiply_few_rows({added, a, weight}, {out});
      const at::Tensor exact = at::mm(as_double(a), as_double(weight)) + as_double(added);
      expect_near(out, exact, at::mm(as_double(a).abs(), as_double(weight).abs()) + as_double(added).abs(), 20);
    }
  }
}

TEST_F(FewRows, ReadEachByte) {
  for (at::ScalarType dtype : kDtypes) {
    const at::Tensor weight = at::arange(-128, 128, at::kInt).to(at::kChar).unsqueeze(1).repeat({1, 70}); // [256, 70]
    const at::Tensor scales = at::rand({256}).to(dtype) + 0.5, out = at::empty({2, 256}, dtype);
    const at::Tensor a = at::zeros({2, 70}, dtype);
    a[0][3] = 1;
    a[1][69] = -1;
    multiply_int8({a, weight, scales}, {out});
    const at::Tensor exact = as_double(at::arange(-128, 128, at::kInt)) * as_double(scales);
    expect_near(out, at::stack({exact, -exact}), exact.abs(), 1);
  }
}

TEST_F(FewRows, OfIntegersWithScales) {
  for (at::ScalarType dtype : kDtypes) {
    for (auto [k, n] : {std::pair{1, 70}, {77, 130}, {300, 550}, {1031, 33}}) {
      const at::Tensor weight = at::randint(-128, 128, {n, k}, at::kChar), scales = at::rand({n}).to(dtype);
      const at::Tensor exact = (as_double(weight) * as_double(scales).unsqueeze(1)).t();
      for (int64_t rows : {1, 2, 3, 4, 7, 8}) {
        const at::Tensor a = at::randn({rows, k}).to(dtype);
        check_product(a, exact, at::empty({rows, n}, dtype), [&](const at::Tensor& out) { multiply_int8({a, weight, scales}, {out}); });
      }
    }
  }
}

// By ATen's own packing, in each form of a last block of columns.
TEST_F(FewRows, OfFourBitsInGroups) {
  if (int4_block() == 0) {
    GTEST_SKIP() << "ATen packs in another order here";
  }
  for (at::ScalarType dtype : kDtypes) {
    for (auto [group, k, n] : {std::tuple{32, 96, 64}, {64, 128, 16}, {128, 512, 112}, {256, 256, 160}, {32, 512, 304}}) {
      const at::Tensor q = at::randint(0, 16, {n, k}, at::kInt), scales_and_zeros = at::randn({k / group, n, 2}).to(dtype);
      const at::Tensor packed = at::_convert_weight_to_int4pack_for_cpu(q, 1);
      const at::Tensor pairs = as_double(scales_and_zeros).repeat_interleave(group, 0); // [k, n, 2]
      const at::Tensor exact = pairs.select(2, 0) * (as_double(q).t() - 8) + pairs.select(2, 1);
      for (int64_t rows : {1, 2, 3, 4, 7, 8}) {
        const at::Tensor a = at::randn({rows, k}).to(dtype);
        check_product(
            a, exact, at::empty({rows, n}, dtype), [&](const at::Tensor& out) { multiply_int4({a, packed, scales_and_zeros}, {out}); });
      }
    }
  }
}

// Panels of bfloat16: integers of 8 bits are exact, those of 4 bits are rounded with their scale.
TEST_F(FewRows, OfManyRowsInPanels) {
  if (!can_multiply_panels()) {
    GTEST_SKIP() << "the processor has no instructions for bfloat16, or AMX";
  }
  for (auto [rows, k, n] : {std::tuple{9, 128, 64}, {16, 96, 128}, {37, 1024, 192}, {256, 256, 320}}) {
    const at::Tensor a = at::randn({rows, k}).to(at::kBFloat16), out = at::empty({rows, n}, at::kBFloat16);
    for (int64_t columns : {n, n - 17}) {
      const at::Tensor weight = at::randint(-128, 128, {columns, k - 2}, at::kChar), scales = at::rand({columns}).to(at::kBFloat16);
      const at::Tensor part = a.slice(1, 0, k - 2).contiguous();
      const at::Tensor exact = (as_double(weight) * as_double(scales).unsqueeze(1)).t();
      check_product(part, exact, at::empty({rows, columns}, at::kBFloat16), [&](const at::Tensor& result) {
        multiply_int8({part, weight, scales}, {result});
      });
    }
    if (int4_block() != kPanelColumns) {
      continue;
    }
    const at::Tensor q = at::randint(0, 16, {n, k}, at::kInt), scales_and_zeros = at::randn({k / 32, n, 2}).to(at::kBFloat16);
    const at::Tensor packed = at::_convert_weight_to_int4pack_for_cpu(q, 1);
    const at::Tensor pairs = scales_and_zeros.to(at::kFloat).repeat_interleave(32, 0);
    const at::Tensor weight = (pairs.select(2, 0) * (q.t() - 8) + pairs.select(2, 1)).to(at::kBFloat16);
    check_product(a, weight, out, [&](const at::Tensor& result) { multiply_int4({a, packed, scales_and_zeros}, {result}); });
  }
}

// ---- Attention ----

struct Heads {
  int64_t batch, heads, key_heads, queries, keys, size;
};

// By the formula, in float64; 0 where all keys are hidden.
at::Tensor exact_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask, double scale) {
  const int64_t group = q.size(1) / k.size(1);
  const at::Tensor keys = as_double(k).repeat_interleave(group, 1), values = as_double(v).repeat_interleave(group, 1);
  at::Tensor scores = at::matmul(as_double(q), keys.transpose(2, 3)) * scale;
  if (mask.defined()) {
    scores = scores + as_double(mask);
  }
  const at::Tensor weights = at::softmax(scores, -1);
  return at::matmul(at::where(weights.isnan(), 0.0, weights), values);
}

void check_attention(at::ScalarType dtype, const Heads& h, const at::Tensor& mask, const Attrs& attrs, double scale) {
  const at::Tensor q = at::randn({h.batch, h.queries, h.heads, h.size}).to(dtype).transpose(1, 2);
  const at::Tensor cache = at::randn({2, h.batch, h.key_heads, h.keys + 9, h.size}).to(dtype);
  const at::Tensor k = cache[0].slice(2, 0, h.keys), v = cache[1].slice(2, 5, h.keys + 5);
  const at::Tensor out = at::empty({h.batch, h.queries, h.heads, h.size}, dtype).transpose(1, 2);
  const at::Tensor total = at::empty({h.batch, h.heads, h.queries});
  const at::Tensor added = mask.defined() ? mask.to(dtype) : mask;
  attend_by_few({q, k, v, added}, {out.fill_(NAN), total}, attrs);
  const at::Tensor exact = exact_attention(q, k, v, added, scale);
  expect_near(out, exact, exact_attention(q, k, v.abs(), added, scale), 100); // scores of about 10, and their exponentials
  const at::Tensor alone = at::empty_like(out), other = at::empty_like(total);
  const OneThread one_thread;
  attend_by_few({q, k, v, added}, {alone, other}, attrs);
  EXPECT_TRUE(at::equal(alone, out) && at::equal(other, total));
}

TEST_F(FewRows, AttendAsInFloat64) {
  const Attrs attrs{0.0, false, std::monostate()};
  for (at::ScalarType dtype : kDtypes) {
    for (const Heads& h :
         {Heads{1, 8, 2, 1, 100, 64},
          {2, 3, 3, 1, 1, 8},
          {1, 4, 1, 3, 65, 80},
          {2, 6, 2, 8, 200, 24},
          {1, 2, 2, 2, 300, 33},
          {1, 7, 1, 1, 64, 128}}) {
      check_attention(dtype, h, at::Tensor(), attrs, 1 / std::sqrt(static_cast<double>(h.size)));
    }
  }
}

TEST_F(FewRows, AttendWithMasks) {
  const Attrs attrs{0.0, false, 0.3};
  for (at::ScalarType dtype : kDtypes) {
    const Heads h{2, 4, 2, 3, 150, 16};
    const at::Tensor keys = at::arange(150);
    const at::Tensor seen = at::where(keys.lt(70), at::zeros({150}), at::full({150}, -kInfinity)); // a cache that is not full
    const at::Tensor window = at::where(keys.lt(90) & keys.ge(75), at::zeros({150}), at::full({150}, -kInfinity));
    const at::Tensor none = at::full({150}, -kInfinity);
    for (const at::Tensor& mask :
         {seen,
          window,
          none,
          at::randn({3, 150}),
          at::randn({2, 4, 3, 150}),
          at::randn({2, 1, 1, 150}),
          at::randn({150, 3}).t(),
          at::randn({3, 1}),
          at::stack({none, seen, window})}) {
      check_attention(dtype, h, mask, attrs, 0.3);
    }
  }
}

// What lies beyond a cache's end may be any number.
TEST_F(FewRows, DoNotReadHiddenKeysAtTheEnds) {
  const at::Tensor q = at::randn({1, 2, 1, 16}), k = at::randn({1, 1, 200, 16}), v = at::randn({1, 1, 200, 16});
  const at::Tensor mask = at::full({200}, -kInfinity, at::kFloat);
  mask.slice(0, 30, 120).zero_();
  at::Tensor outs[2], totals[2];
  for (int i = 0; i < 2; ++i) {
    outs[i] = at::empty({1, 2, 1, 16});
    totals[i] = at::empty({1, 2, 1});
    attend_by_few({q, k, v, mask}, {outs[i], totals[i]}, {0.0, false, std::monostate()});
    for (const at::Tensor& t : {k, v}) {
      t.slice(2, 0, 30).fill_(NAN);
      t.slice(2, 120).fill_(NAN);
    }
  }
  EXPECT_TRUE(at::equal(outs[0], outs[1]) && at::equal(totals[0], totals[1]));
}

} // namespace
} // namespace torch_xla::cpu
