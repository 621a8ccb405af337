// Fused kernels against ATen: shapes of domains, reductions by rows and columns, duplication, layouts.
#include "engine_harness.h"

namespace torch_xla::testing {
namespace {

Ex softmax(Ex x, int64_t dim) {
  Ex e = (x - x.reduce(Prim::kReduceMax, {dim})).unary(Prim::kExp);
  return e / e.reduce(Prim::kReduceSum, {dim});
}

Ex mean(Ex x, const Dims& dims) {
  double count = 1;
  for (int64_t d : dims) {
    count *= static_cast<double>(x.type().dims[d]);
  }
  return x.reduce(Prim::kReduceSum, dims) * (1.0 / count);
}

TEST(EngineFusion, Pointwise) {
  Program p;
  at::Tensor a = at::randn({37, 65});
  at::Tensor b = at::randn({65});
  Ex y = p.input(a) * 2.0 + p.input(b);
  p.check({y, y.unary(Prim::kTanh)}, {a * 2 + b, (a * 2 + b).tanh()});
}

TEST(EngineFusion, ScalarsAndZeroRank) {
  Program p;
  at::Tensor a = at::randn({});
  at::Tensor b = at::randn({1000});
  Ex s = p.scalar(1.5).to(DType::F32);
  Ex x = p.input(a);
  Ex y = p.input(b);
  p.check({x * s, y * x * s, y * (s * s - 1.0), p.scalar(2)}, {a * 1.5, b * a * 1.5, b * 1.25, at::full({}, 2.0, at::kDouble)});
}

TEST(EngineFusion, SoftmaxRows) {
  for (int64_t columns : {1, 7, 16, 1000}) {
    Program p;
    at::Tensor a = at::randn({33, columns});
    Ex y = softmax(p.input(a), 1);
    p.check({y}, {at::softmax(a, 1)});
    EXPECT_LE(count_steps(*p.compile({y})), 1u + (columns == 1));
  }
}

TEST(EngineFusion, SoftmaxColumns) {
  Program p;
  at::Tensor a = at::randn({20, 30, 70});
  Ex x = p.input(a);
  p.check({softmax(x, 1), softmax(x, 0), softmax(x, 2)}, {at::softmax(a, 1), at::softmax(a, 0), at::softmax(a, 2)});
}

TEST(EngineFusion, LayerNorm) {
  Program p;
  at::Tensor a = at::randn({64, 768});
  at::Tensor w = at::randn({768});
  at::Tensor b = at::randn({768});
  Ex x = p.input(a);
  Ex centered = x - mean(x, {1});
  Ex rstd = (mean(centered * centered, {1}) + 1e-5).unary(Prim::kRsqrt);
  Ex y = centered * rstd * p.input(w) + p.input(b);
  p.check({y, rstd}, {at::layer_norm(a, {768}, w, b), (a.var({1}, false, true) + 1e-5).rsqrt()});
  EXPECT_EQ(count_steps(*p.compile({y, rstd})), 1u);
}

TEST(EngineFusion, BatchNormTrainingAndBackward) {
  Program p;
  at::Tensor a = at::randn({8, 20, 9, 11});
  at::Tensor g = at::randn({8, 20, 9, 11});
  at::Tensor w = at::randn({20});
  Ex x = p.input(a);
  Ex grad = p.input(g);
  Ex weight = p.input(w).reshape({1, 20, 1, 1});
  Ex centered = x - mean(x, {0, 2, 3});
  Ex rstd = (mean(centered * centered, {0, 2, 3}) + 1e-5).unary(Prim::kRsqrt);
  Ex normal = centered * rstd;
  Ex sum_g = grad.reduce(Prim::kReduceSum, {0, 2, 3});
  Ex sum_gx = (grad * normal).reduce(Prim::kReduceSum, {0, 2, 3});
  double n = 8 * 9 * 11;
  Ex dx = (grad - sum_g * (1 / n) - normal * (sum_gx * (1 / n))) * rstd * weight;
  auto out = at::native_batch_norm(a, w, {}, {}, {}, true, 0.1, 1e-5);
  auto back = at::native_batch_norm_backward(g, a, w, {}, {}, std::get<1>(out), std::get<2>(out), true, 1e-5, {true, true, true});
  p.check(
      {normal * weight, dx, sum_gx.reshape({20}), sum_g.reshape({20})},
      {std::get<0>(out), std::get<0>(back), std::get<1>(back), std::get<2>(back)},
      1e-4);
}

TEST(EngineFusion, ColumnSums) {
  Program p;
  at::Tensor a = at::randn({300, 130});
  at::Tensor b = at::randn({300, 130});
  Ex x = p.input(a);
  Ex y = p.input(b);
  Ex z = select(x > 0.0, y, 0.0);
  Ex s = z.reduce(Prim::kReduceSum, {0});
  Ex t = (z * x).reduce(Prim::kReduceSum, {0}) * 0.5;
  at::Tensor rz = at::where(a > 0, b, at::zeros({}));
  p.check({z, s, t}, {rz, rz.sum({0}, true), (rz * a).sum({0}, true) * 0.5}, 1e-4);
  EXPECT_EQ(count_steps(*p.compile({z, s, t})), 1u);
}

TEST(EngineFusion, ReduceMiddle) {
  Program p;
  at::Tensor a = at::randn({4, 50, 3, 33});
  Ex x = p.input(a);
  p.check(
      {x.reduce(Prim::kReduceMax, {1}), x.reduce(Prim::kReduceMin, {0, 2}), x.reduce(Prim::kReduceSum, {1, 3})},
      {a.amax({1}, true), a.amin({0, 2}, true), a.sum({1, 3}, true)},
      1e-4);
}

TEST(EngineFusion, LargeFullReductions) {
  for (auto sizes : std::vector<std::vector<int64_t>>{{300000}, {3, 100000}, {512, 700}, {100000, 3}, {262139}}) {
    Program p;
    at::Tensor a = at::rand(sizes);
    Ex x = p.input(a);
    Dims all;
    for (size_t d = 0; d < sizes.size(); ++d) {
      all.push_back(static_cast<int64_t>(d));
    }
    Ex s = (x * x).reduce(Prim::kReduceSum, all).reshape({});
    p.check({s, s.unary(Prim::kSqrt)}, {(a * a).sum(), (a * a).sum().sqrt()}, 1e-5);
  }
}

TEST(EngineFusion, ReduceBroadcast) {
  Program p;
  at::Tensor a = at::randn({5, 1});
  Ex x{&p.b(), p.b().broadcast(p.input(a).id(), {5, 40})};
  Ex c{&p.b(), p.b().broadcast(p.b().constant(2, DType::F32), {5, 40})};
  p.check({x.reduce(Prim::kReduceSum, {1}), c.reduce(Prim::kReduceSum, {0}), c}, {a * 40, at::full({1, 40}, 10.0), at::full({5, 40}, 2.0)});
}

TEST(EngineFusion, HalfTypes) {
  for (auto type : {at::kBFloat16, at::kHalf}) {
    Program p;
    at::Tensor a = at::randn({40, 70}).to(type);
    Ex x = p.input(a);
    DType half = x.dtype();
    Ex y = softmax(x.to(DType::F32), 1).to(half);
    p.check({y, y.to(DType::F64), x + x}, {at::softmax(a, 1), at::softmax(a, 1).to(at::kDouble), a + a}, 1e-2);
  }
}

TEST(EngineFusion, ChannelsLastInput) {
  Program p;
  at::Tensor a = at::randn({4, 16, 5, 7}).contiguous(at::MemoryFormat::ChannelsLast);
  at::Tensor b = at::randn({4, 16, 5, 7});
  at::Tensor w = at::randn({16});
  Ex x = p.input(a);
  Ex y = (x + p.input(w).reshape({1, 16, 1, 1})).unary(Prim::kExp);
  p.check(
      {y, y.reduce(Prim::kReduceSum, {0, 2, 3}), y + p.input(b)},
      {(a + w.view({1, 16, 1, 1})).exp(), (a + w.view({1, 16, 1, 1})).exp().sum({0, 2, 3}, true), (a + w.view({1, 16, 1, 1})).exp() + b},
      1e-4);
}

TEST(EngineFusion, EmptyTensors) {
  Program p;
  at::Tensor a = at::randn({0, 5});
  Ex x = p.input(a);
  p.check(
      {x + 1.0, x.reduce(Prim::kReduceSum, {0}), x.reduce(Prim::kReduceSum, {1}), x.reduce(Prim::kReduceSum, {0, 1})},
      {a, at::zeros({1, 5}), at::zeros({0, 1}), at::zeros({1, 1})});
}

TEST(EngineFusion, IotaAndCompare) {
  Program p;
  Ex i{&p.b(), p.b().iota({6, 9}, 1, DType::I64)};
  Ex j{&p.b(), p.b().iota({6, 9}, 0, DType::F32)};
  at::Tensor c = at::arange(9).expand({6, 9});
  at::Tensor r = at::arange(6, at::kFloat).view({6, 1}).expand({6, 9});
  p.check({i, j, i > j.to(DType::I64)}, {c, r, c > r});
}

TEST(EngineFusion, OptimizerStepIsOneKernel) {
  Program p;
  at::Tensor w = at::randn({500});
  at::Tensor g = at::randn({500});
  at::Tensor m = at::randn({500});
  at::Tensor v = at::rand({500});
  Ex grad = p.input(g);
  Ex m2 = p.input(m) * 0.9 + grad * 0.1;
  Ex v2 = p.input(v) * 0.99 + grad * grad * 0.01;
  Ex w2 = p.input(w) - m2 / (v2.unary(Prim::kSqrt) + 1e-8) * p.scalar(0.1).to(DType::F32);
  at::Tensor em = m * 0.9 + g * 0.1;
  at::Tensor ev = v * 0.99 + g * g * 0.01;
  p.check({w2, m2, v2}, {w - em / (ev.sqrt() + 1e-8) * 0.1, em, ev}, 1e-4);
  EXPECT_EQ(count_steps(*p.compile({w2, m2, v2})), 1u);
}

TEST(EngineFusion, TransposesAreTiled) {
  for (int64_t rows : {256, 130, 251}) {
    Program p;
    at::Tensor a = at::randn({rows, 160});
    at::Tensor b = at::randn({160, rows});
    Ex x = p.input(a);
    Ex t{&p.b(), p.b().permute(x.id(), {1, 0})};
    p.check({t, t + p.input(b), t.reduce(Prim::kReduceSum, {0})}, {a.t(), a.t() + b, a.t().sum({0}, true)}, 1e-4);
  }
}

TEST(EngineFusion, LongChainsAreSplit) {
  Program p;
  at::Tensor a = at::randn({100});
  Ex x = p.input(a);
  at::Tensor expected = a;
  for (int i = 0; i < 2500; ++i) {
    x = x + 0.001;
    expected = expected + 0.001;
  }
  p.check({x}, {expected}, 1e-3);
}

TEST(EngineFusion, ExpensiveValuesBeforeReductionOfLongRows) {
  Program p;
  at::Tensor a = at::randn({3, 200000});
  Ex y = softmax(p.input(a), 1);
  p.check({y}, {at::softmax(a, 1)}, 1e-5);
}

TEST(EngineFusion, StagesWriteInPlaceSafely) {
  Program p;
  at::Tensor a = at::randn({16, 64});
  Ex x = p.input(a);
  Ex y = x * 2.0;
  Ex z = x - y.reduce(Prim::kReduceMax, {1});
  p.check({y, z}, {a * 2, a - (a * 2).amax({1}, true)});
}

} // namespace
} // namespace torch_xla::testing
