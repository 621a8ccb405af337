// Products by oneDNN and small ones against ATen's, in all orders of the operands' memory.
#include <ATen/ops/addmm.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <cmath>
#include <initializer_list>

#include "engine/cpu/cost.h"
#include "engine/cpu/few_rows/few_rows.h"
#include "engine/cpu/library/half_products.h"
#include "engine/cpu/library/products.h"
#include "engine/cpu/schedule/layout.h"
#include "engine/cpu/threads/leave.h"
#include "engine/cpu/threads/team.h"
#include "ops/registry.h"

namespace torch_xla::cpu {
namespace {

using Multiply = void (*)(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// [m, k] by [k, n].
void check_against_aten(Multiply multiply, int64_t m, int64_t k, int64_t n) {
  c10::InferenceMode inference;
  const double tolerance = 1e-4 + 1e-5 * std::sqrt(static_cast<double>(k)); // of sums that may come to nothing, of numbers of about 1
  for (bool a_is_transposed : {false, true}) {
    for (bool b_is_transposed : {false, true}) {
      at::Tensor a = a_is_transposed ? at::randn({k, m}).t() : at::randn({m, k});
      at::Tensor b = b_is_transposed ? at::randn({n, k}).t() : at::randn({k, n});
      at::Tensor out = at::empty({m, n}).fill_(NAN);
      multiply({a, b}, {out});
      EXPECT_TRUE(at::allclose(out, at::mm(a, b), 1e-4, tolerance));
      for (const at::Tensor& bias : {at::randn({n}), at::randn({m, 1}), at::randn({1, n}), at::randn({m, n})}) {
        multiply({bias, a, b}, {out.fill_(NAN)});
        EXPECT_TRUE(at::allclose(out, at::addmm(bias, a, b), 1e-4, tolerance));
      }
    }
  }
}

CallSpec spec_of(const char* text) {
  LaidOutGraph laid_out = lay_out(parse_graph(text, find_op));
  return make_call_spec(laid_out, laid_out.graph.nodes.back(), true);
}

TEST(LibraryMatmul, AgreesWithAten) {
  if (!can_multiply_by_onednn()) {
    GTEST_SKIP() << "ATen refuses oneDNN's product on a processor without AVX-512";
  }
  check_against_aten(multiply_by_onednn, 30, 70, 50);
}

// What is left of rows or sums for which oneDNN makes no code, by each kernel that multiplies it.
TEST(LibraryMatmul, AgreesWithAtenWhereOnednnIsGivenAPart) {
  if (!can_multiply_by_onednn()) {
    GTEST_SKIP() << "ATen refuses oneDNN's product on a processor without AVX-512";
  }
  for (auto [m, k, n] : {std::array{117, 70, 90}, {1023, 5, 40}, {70, 117, 50}, {1023, 1023, 8}}) {
    check_against_aten(multiply_by_onednn, m, k, n);
  }
}

// Else batches and lengths that go on changing would fill the memory with oneDNN's code.
TEST(LibraryMatmul, OnednnIsGivenFewSizesOfABatch) {
  auto num_sizes = [](const char* form) {
    int64_t sizes = 0;
    for (int64_t batch = 1024; batch < 2048; ++batch) {
      std::string text = form;
      for (size_t at = text.find('N'); at != text.npos; at = text.find('N')) {
        text.replace(at, 1, std::to_string(batch));
      }
      sizes += is_whole_for_onednn(spec_of(text.c_str()));
    }
    return sizes;
  };
  EXPECT_EQ(num_sizes("graph(%0: f32[N,256], %1: f32[256,99]) {\n  %2: f32[N,99] = aten::mm(%0, %1)\n  return %2\n}\n"), kShapesPerOctave);
  EXPECT_EQ(
      num_sizes("graph(%0: f32[N,77], %1: f32[N,99]) {\n  %2: f32[77,N] = view(%0) {[77, N], [1, 77], 0}\n"
                "  %3: f32[77,99] = aten::mm(%2, %1)\n  return %3\n}\n"),
      kShapesPerOctave);
}

TEST(LibraryMatmul, SmallProductsAgreeWithAten) {
  for (auto [m, k, n] : {std::array{1, 4, 32}, {3, 7, 5}, {1, 1, 1}, {2, 0, 3}, {5, 3, 1}, {0, 2, 2}}) {
    check_against_aten(multiply_small, m, k, n);
  }
  at::Tensor out = at::empty({2, 2});
  multiply_small({at::scalar_tensor(3.0f), at::ones({2, 5}), at::ones({5, 2})}, {out});
  EXPECT_TRUE(at::equal(out, at::full({2, 2}, 8.0f)));
}

TEST(LibraryMatmul, ProductsOfFewRowsAgreeWithAten) {
  if (!can_multiply_rows()) {
    GTEST_SKIP() << "there is no code for this processor";
  }
  for (int64_t m : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{5}, kMaxFewRows}) {
    for (auto [k, n] : {std::pair{1, 1}, {7, 5}, {0, 3}, {64, 16}, {100, 250}, {300, 1100}, {1031, 33}, {5000, 2}}) {
      check_against_aten(multiply_few_rows, m, k, n);
    }
  }
}

// Each number of 16 bits, times one, in the parts of whole vectors and in the rest.
TEST(LibraryMatmul, ProductsOfFewRowsReadHalves) {
  if (!can_multiply_rows()) {
    GTEST_SKIP() << "there is no code for this processor";
  }
  c10::InferenceMode inference;
  for (at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const at::Tensor all = at::arange(1 << 16, at::kInt).to(at::kShort).view(dtype);
    for (int64_t k : {1, 8, 64}) {
      at::Tensor b = at::zeros({k, 1 << 16}, dtype);
      b[0] = all;
      const at::Tensor a = at::ones({1, k}, dtype);
      for (const at::Tensor& matrix : {b, b.t().contiguous().t()}) {
        at::Tensor out = at::empty({1, 1 << 16}, dtype);
        multiply_few_rows({a, matrix}, {out});
        EXPECT_TRUE(at::allclose(out[0], all, 0, 0, /*equal_nan=*/true)) << dtype << ", " << k;
      }
    }
  }
}

TEST(LibraryMatmul, WidensProductsOfHalves) {
  auto widens = [](const std::string& a, const std::string& b, const std::string& result) {
    Graph graph = parse_graph(str("graph(%0: ", a, ", %1: ", b, ") {\n  %2: ", result, " = aten::mm(%0, %1)\n  return %2\n}\n"), find_op);
    return widens_products(graph, graph.nodes.back());
  };
  const bool is_slow = multiplies_slowly(DType::BF16);
  EXPECT_EQ(widens("bf16[9,64]", "bf16[64,64]", "bf16[9,64]"), is_slow);
  EXPECT_EQ(widens("bf16[8,63]", "bf16[63,64]", "bf16[8,64]"), is_slow);
  EXPECT_EQ(widens("bf16[8,64]", "bf16[64,64]", "bf16[8,64]"), is_slow && !can_multiply_rows());
  EXPECT_FALSE(widens("f32[9,64]", "f32[64,64]", "f32[9,64]"));
}

TEST(LibraryMatmul, TakesFewRowsByLongPieces) {
  auto takes = [](const std::string& text) {
    LaidOutGraph laid_out = lay_out(parse_graph(text, find_op));
    return has_few_rows(make_call_spec(laid_out, laid_out.graph.nodes.back(), true));
  };
  auto product = [](const char* a, const char* b, const char* result) {
    return str("graph(%0: ", a, ", %1: ", b, ") {\n  %2: ", result, " = aten::mm(%0, %1)\n  return %2\n}\n");
  };
  bool can = can_multiply_rows();
#if defined(__x86_64__)
  can = can && !__builtin_cpu_is("intel");
#endif
  EXPECT_EQ(takes(product("f32[8,10]", "f32[10,64]", "f32[8,64]")), can);
  EXPECT_FALSE(takes(product("f32[9,10]", "f32[10,64]", "f32[9,64]")));
  EXPECT_FALSE(takes(product("f32[8,4096]", "f32[4096,10]", "f32[8,10]")));
  EXPECT_FALSE(takes(product("f64[1,64]", "f64[64,64]", "f64[1,64]")));
  const char* transposed =
      "graph(%0: f32[1,64], %1: f32[10,64]) {\n  %2: f32[64,10] = view(%1) {[64, 1], [1, 64], 0}\n"
      "  %3: f32[1,10] = aten::mm(%0, %2)\n  return %3\n}\n";
  EXPECT_EQ(takes(transposed), can);
}

TEST(LibraryMatmul, ProductsByAVectorAgreeWithAten) {
  if (!can_multiply_rows()) {
    GTEST_SKIP() << "there is no code for this processor";
  }
  c10::InferenceMode inference;
  for (const at::Tensor& matrix : {at::randn({70, 300}), at::randn({300, 70}).t(), at::randn({70, 0})}) {
    at::Tensor vector = at::randn({2 * matrix.size(1)}).slice(0, 0, std::nullopt, 2);
    at::Tensor out = at::empty({70}).fill_(NAN);
    multiply_vector({matrix, vector}, {out});
    EXPECT_TRUE(at::allclose(out, at::mv(matrix, vector), 1e-4, 1e-4));
  }
}

// [m, k] by [k, n]: one thread gives what all give, to the last bit.
void check_without_threads(Multiply multiply, int64_t m, int64_t k, int64_t n) {
  c10::InferenceMode inference;
  at::Tensor a = at::randn({m, k});
  for (const at::Tensor& b : {at::randn({k, n}), at::randn({n, k}).t()}) {
    at::Tensor parallel = at::empty({m, n});
    multiply({a, b}, {parallel});
    at::Tensor alone = at::empty({m, n});
    OneThread one_thread;
    multiply({a, b}, {alone});
    EXPECT_TRUE(at::equal(alone, parallel));
  }
}

TEST(LibraryMatmul, ProductsOfFewRowsDoNotDependOnThreads) {
  if (!can_multiply_rows()) {
    GTEST_SKIP() << "there is no code for this processor";
  }
  for (auto [m, k, n] : {std::array{3, 1000, 1234}, {5, 256, 1024}, {7, 256, 10000}}) {
    check_without_threads(multiply_few_rows, m, k, n);
  }
}

TEST(LibraryMatmul, ProductsInPartsAgreeWithAten) {
  for (auto [m, k, n] : {std::array{130, 70, 150}, {33, 40, 1000}, {1000, 40, 33}, {17, 5, 3}, {1, 4000, 300}, {2, 0, 3}, {0, 2, 2}}) {
    check_against_aten(multiply_parts, m, k, n);
  }
}

TEST(LibraryMatmul, ProductsInPartsDoNotDependOnThreads) {
  check_without_threads(multiply_parts, 64, 128, 384);
}

// MKL cuts sums of this length on two threads.
TEST(LibraryMatmul, ProductsInPartsDoNotDependOnLoad) {
  c10::InferenceMode inference;
  at::Tensor a = at::randn({100, 1000}), b = at::randn({1000, 256});
  at::Tensor quiet = at::empty({100, 256}), alone = at::empty({100, 256});
  multiply_parts({a, b}, {quiet});
  let_teams_sleep(true, 2, omp_get_num_procs());
  EXPECT_TRUE(is_short_of_processors());
  multiply_parts({a, b}, {alone});
  let_teams_sleep(false, 2);
  EXPECT_TRUE(at::equal(alone, quiet));
}

// With a team, and by one thread while somebody records.
void check_beside_recorder(Multiply multiply, std::initializer_list<std::array<int64_t, 3>> products) {
  c10::InferenceMode inference;
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  for (auto [m, k, n] : products) {
    at::Tensor bias = at::randn({n});
    for (const at::Tensor& a : {at::randn({m, k}), at::randn({k, m}).t()}) {
      for (const at::Tensor& b : {at::randn({k, n}), at::randn({n, k}).t()}) {
        at::Tensor by_team = at::empty({m, n}), by_one = at::empty({m, n});
        multiply({bias, a, b}, {by_team});
        run_beside_recorder({}, [&] {
          multiply({bias, a, b}, {by_one});
          return false;
        });
        EXPECT_TRUE(at::equal(by_one, by_team)) << m << " x " << k << " x " << n;
      }
    }
  }
  at::set_num_threads(threads);
}

// MKL cuts the sums of these, or goes about narrow ones in another way, where it has been told of two threads, also in a parallel region.
TEST(LibraryMatmul, ProductsInPartsDoNotDependOnRecorders) {
  check_beside_recorder(
      multiply_parts, {{256, 1024, 256}, {64, 784, 512}, {100, 1000, 256}, {8, 448, 1000}, {10, 320, 1000}, {200, 256, 33}});
}

TEST(LibraryMatmul, ProductsByOnednnDoNotDependOnRecorders) {
  if (!can_multiply_by_onednn()) {
    GTEST_SKIP() << "ATen refuses oneDNN's product on a processor without AVX-512";
  }
  check_beside_recorder(
      multiply_by_onednn,
      {{64, 784, 512},
       {512, 64, 784},
       {256, 2047, 64},
       {448, 2032, 48},
       {1431, 2000, 18},
       {117, 500, 300},
       {9, 2000, 900},
       {2000, 700, 16}});
}

TEST(LibraryMatmul, AFewRowsAreAsMuchWorkAsTheirMatrixIsToRead) {
  if (!can_multiply_rows()) {
    GTEST_SKIP() << "such products are MKL's here";
  }
  const LibraryCall row(spec_of("graph(%0: f32[1,512], %1: f32[512,512]) {\n  %2: f32[1,512] = aten::mm(%0, %1)\n  return %2\n}\n"));
  EXPECT_EQ(row.work(), Work(512 * 512 / kNumbersPerThread));
  const LibraryCall vector(spec_of("graph(%0: f32[512,512], %1: f32[512]) {\n  %2: f32[512] = aten::mv(%0, %1)\n  return %2\n}\n"));
  EXPECT_EQ(vector.work(), row.work());
}

bool is_true_of(bool (*predicate)(const CallSpec& call), const char* text) {
  return predicate(spec_of(text));
}

TEST(LibraryMatmul, PrefersPartsOfFloat32ProductsThatAreLongEnough) {
  const char* fitting = "graph(%0: f32[64,128], %1: f32[128,384]) {\n  %2: f32[64,384] = aten::mm(%0, %1)\n  return %2\n}\n";
#if defined(__x86_64__)
  EXPECT_TRUE(is_true_of(prefers_parts, fitting));
#else
  EXPECT_FALSE(is_true_of(prefers_parts, fitting));
#endif
  for (const char* never :
       {"graph(%0: f32[64,128], %1: f32[128,128]) {\n  %2: f32[64,128] = aten::mm(%0, %1)\n  return %2\n}\n",
        "graph(%0: f64[64,128], %1: f64[128,384]) {\n  %2: f64[64,384] = aten::mm(%0, %1)\n  return %2\n}\n",
        "graph(%0: f32[384], %1: f32[64,128], %2: f32[128,384]) {\n  %3: f32[64,384] = aten::addmm(%0, %1, %2) {2, 1}\n  return "
        "%3\n}\n"}) {
    EXPECT_FALSE(is_true_of(prefers_parts, never)) << never;
  }
}

TEST(LibraryMatmul, PrefersLargeFloat32Products) {
  auto prefers = [](const char* text) { return is_true_of(prefers_onednn, text); };
  bool large = prefers("graph(%0: f32[256,256], %1: f32[256,256]) {\n  %2: f32[256,256] = aten::mm(%0, %1)\n  return %2\n}\n");
  const char* sum =
      "graph(%0: f32[256], %1: f32[256,256], %2: f32[256,256]) {\n  %3: f32[256,256] = aten::addmm(%0, %1, %2) {1, 1}\n  return %3\n}\n";
  EXPECT_EQ(prefers(sum), large); // the processor decides
#if defined(__x86_64__)
  EXPECT_EQ(large, !__builtin_cpu_is("intel") && can_multiply_by_onednn());
#endif
  const LibraryCall call(spec_of("graph(%0: f32[256,256], %1: f32[256,256]) {\n  %2: f32[256,256] = aten::mm(%0, %1)\n  return %2\n}\n"));
  EXPECT_EQ(call.work(), Work(256 * 256 * 256 / kProductsPerThread)); // cut by us, or of uncut sums
  for (const char* never :
       {"graph(%0: f32[16,64], %1: f32[64,32]) {\n  %2: f32[16,32] = aten::mm(%0, %1)\n  return %2\n}\n",
        "graph(%0: f64[256,256], %1: f64[256,256]) {\n  %2: f64[256,256] = aten::mm(%0, %1)\n  return %2\n}\n",
        "graph(%0: f32[256], %1: f32[256,256], %2: f32[256,256]) {\n  %3: f32[256,256] = aten::addmm(%0, %1, %2) {2, 1}\n  return "
        "%3\n}\n"}) {
    EXPECT_FALSE(prefers(never)) << never;
  }
}

} // namespace
} // namespace torch_xla::cpu
