// Products by oneDNN against ATen's, in all orders of the operands' memory.
#include <ATen/ops/addmm.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "engine/cpu/library/products.h"
#include "engine/cpu/schedule/layout.h"
#include "ops/registry.h"

namespace torch_xla::cpu {
namespace {

TEST(LibraryMatmul, AgreesWithAten) {
  if (!can_multiply_by_onednn()) {
    GTEST_SKIP() << "ATen refuses oneDNN's product on a processor without AVX-512";
  }
  c10::InferenceMode inference;
  for (bool a_is_transposed : {false, true}) {
    for (bool b_is_transposed : {false, true}) {
      at::Tensor a = a_is_transposed ? at::randn({70, 30}).t() : at::randn({30, 70});
      at::Tensor b = b_is_transposed ? at::randn({50, 70}).t() : at::randn({70, 50});
      at::Tensor out = at::empty({30, 50}).fill_(NAN);
      multiply_by_onednn({a, b}, {out});
      EXPECT_TRUE(at::allclose(out, at::mm(a, b), 1e-4, 1e-4));
      for (const at::Tensor& bias : {at::randn({50}), at::randn({30, 1}), at::randn({30, 50})}) {
        multiply_by_onednn({bias, a, b}, {out.fill_(NAN)});
        EXPECT_TRUE(at::allclose(out, at::addmm(bias, a, b), 1e-4, 1e-4));
      }
    }
  }
}

TEST(LibraryMatmul, PrefersLargeFloat32Products) {
  auto prefers = [](const char* text) {
    LaidOutGraph laid_out = lay_out(parse_graph(text, find_op));
    return prefers_onednn(make_call_spec(laid_out, laid_out.graph.nodes.back(), true));
  };
  bool large = prefers("graph(%0: f32[256,256], %1: f32[256,256]) {\n  %2: f32[256,256] = aten::mm(%0, %1)\n  return %2\n}\n");
  const char* sum =
      "graph(%0: f32[256], %1: f32[256,256], %2: f32[256,256]) {\n  %3: f32[256,256] = aten::addmm(%0, %1, %2) {1, 1}\n  return %3\n}\n";
  EXPECT_EQ(prefers(sum), large); // the processor decides
#if defined(__x86_64__)
  EXPECT_EQ(large, !__builtin_cpu_is("intel") && can_multiply_by_onednn());
#endif
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
