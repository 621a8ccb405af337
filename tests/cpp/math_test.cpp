// Accuracy of the elementary functions in units of the last place, on a sweep through all floats and on special values.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "spec_builder.h"

namespace torch_xla::cpu {

namespace {

using Reference = long double (*)(long double);

long double logistic(long double x) {
  return 1 / (1 + std::exp(-x));
}
long double gelu(long double x) {
  return x * std::erfc(-x * std::sqrt(0.5L)) / 2;
}
long double rsqrt(long double x) {
  return 1 / std::sqrt(x);
}

struct Function {
  const char* name;
  Prim prim;
  Reference reference;
  double float_bound; // ulp
  double double_bound;
};

const Function kFunctions[] = {
    {"exp", Prim::kExp, std::exp, 1.5, 1.5},
    {"expm1", Prim::kExpm1, std::expm1, 2, 1.5},
    {"log", Prim::kLog, std::log, 1.5, 1.5},
    {"log1p", Prim::kLog1p, std::log1p, 2, 1.5},
    {"sqrt", Prim::kSqrt, std::sqrt, 0.501, 0.501},
    {"rsqrt", Prim::kRsqrt, rsqrt, 1.5, 1.5},
    {"sin", Prim::kSin, std::sin, 1.5, 1.5},
    {"cos", Prim::kCos, std::cos, 1.5, 1.5},
    {"tan", Prim::kTan, std::tan, 1.5, 1.5},
    {"tanh", Prim::kTanh, std::tanh, 2, 2.5},
    {"asin", Prim::kAsin, std::asin, 1.5, 1.5},
    {"acos", Prim::kAcos, std::acos, 1.5, 1.5},
    {"atan", Prim::kAtan, std::atan, 1.5, 1.5},
    {"sinh", Prim::kSinh, std::sinh, 2, 2.5},
    {"cosh", Prim::kCosh, std::cosh, 2, 2.5},
    {"erf", Prim::kErf, std::erf, 2, 1.5},
    {"erfc", Prim::kErfc, std::erfc, 4, 5},
    {"gelu", Prim::kGelu, gelu, 2, 2000}, // of doubles by erfc, whose argument is rounded: far out its square tells
    {"logistic", Prim::kLogistic, logistic, 2, 2},
};

template <typename T>
constexpr DType kType = sizeof(T) == 4 ? DType::F32 : DType::F64;

// Distance of a result from the exact value in units of the last place of the type; 0 if both are NaN or the same infinity.
template <typename T>
double ulps(T result, long double exact) {
  T rounded = static_cast<T>(exact);
  if (std::isnan(rounded) || std::isnan(result)) {
    return std::isnan(rounded) && std::isnan(result) ? 0 : 1e30;
  }
  if (rounded == result) {
    return std::signbit(rounded) == std::signbit(result) ? 0.0 : 1e30;
  }
  T limit = std::numeric_limits<T>::max();
  if (std::isinf(rounded) || std::isinf(result)) {
    return std::abs(static_cast<double>(rounded)) >= limit && std::abs(static_cast<double>(result)) >= limit ? 1 : 1e30;
  }
  T size = std::abs(rounded);
  long double unit = static_cast<long double>(std::nextafter(size, std::numeric_limits<T>::infinity())) - size;
  return static_cast<double>(std::abs(exact - result) / unit);
}

// Bit patterns at equal distances, and what usually goes wrong.
template <typename T>
std::vector<T> arguments(size_t count) {
  std::vector<T> v = {
      0,
      1,
      2,
      0.5,
      0.625,
      0.921875,
      88.72,
      88.73,
      89,
      103,
      104,
      105,
      709.7,
      745,
      1e-20,
      1e-38,
      1e-45,
      1e30,
      18,
      9.01,
      std::numeric_limits<T>::infinity(),
      std::numeric_limits<T>::quiet_NaN(),
      std::numeric_limits<T>::max(),
      std::numeric_limits<T>::min(),
      std::numeric_limits<T>::denorm_min(),
      std::numeric_limits<T>::epsilon()};
  for (size_t i = 0, n = v.size(); i < n; ++i) {
    v.push_back(-v[i]);
  }
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  Bits step = std::numeric_limits<Bits>::max() / static_cast<Bits>(count) | 1;
  for (Bits bits = 1, i = 0; i < count; ++i, bits += step) {
    v.push_back(std::bit_cast<T>(bits));
  }
  // Where functions bend, much denser than the bit patterns.
  for (size_t i = 0; i < count; ++i) {
    v.push_back(static_cast<T>((static_cast<double>(i) / static_cast<double>(count) - 0.5) * 40));
  }
  return v;
}

// As vectors, or each element as a row of its own, which is scalar code.
template <typename T>
std::vector<T> apply(Prim prim, const std::vector<T>& x, bool vectors) {
  int64_t n = static_cast<int64_t>(x.size());
  Dims outer = vectors ? Dims() : Dims{n};
  SpecBuilder b(KernelForm::kPointwise, outer, {}, vectors ? n : 1);
  b.store(b.op(prim, {b.load(kType<T>, b.dense())}), kType<T>, b.dense());
  std::vector<T> y(x.size());
  b.run({const_cast<T*>(x.data()), y.data()});
  return y;
}

template <typename T>
void check(const Function& f, size_t count, bool vectors, double bound) {
  std::vector<T> x = arguments<T>(count);
  std::vector<T> y = apply(f.prim, x, vectors);
  double worst = 0;
  T where = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    long double exact = f.reference(x[i]);
    // Sleef's functions give up just before the range of the type ends.
    bool grows = f.prim == Prim::kSinh || f.prim == Prim::kCosh;
    bool early = grows && std::isinf(y[i]) && std::abs(exact) > std::numeric_limits<T>::max() / 8;
    double error = early ? 0 : ulps(y[i], exact);
    if (error > worst) {
      worst = error;
      where = x[i];
    }
  }
  testing::Test::RecordProperty(vectors ? "vector_ulps" : "scalar_ulps", std::to_string(worst));
  EXPECT_LE(worst, bound) << f.name << (vectors ? " (vectors)" : " (scalars)") << " at " << where;
}

class MathTest : public testing::TestWithParam<Function> {};

TEST_P(MathTest, Float) {
  if (GetParam().prim == Prim::kGelu && !__builtin_cpu_supports("avx512f")) {
    GTEST_SKIP() << "by erf, which loses the bits of small results";
  }
  check<float>(GetParam(), 400000, true, GetParam().float_bound);
  check<float>(GetParam(), 20000, false, GetParam().float_bound);
}

TEST_P(MathTest, Double) {
  check<double>(GetParam(), 50000, true, GetParam().double_bound);
  check<double>(GetParam(), 5000, false, GetParam().double_bound);
}

INSTANTIATE_TEST_SUITE_P(All, MathTest, testing::ValuesIn(kFunctions), [](const auto& info) { return std::string(info.param.name); });

template <typename T>
std::vector<T> apply(Prim prim, const std::vector<T>& x, const std::vector<T>& y) {
  SpecBuilder b(KernelForm::kPointwise, {}, {}, static_cast<int64_t>(x.size()));
  int p = b.load(kType<T>, b.dense());
  int q = b.load(kType<T>, b.dense());
  b.store(b.op(prim, {p, q}), kType<T>, b.dense());
  std::vector<T> z(x.size());
  b.run({const_cast<T*>(x.data()), const_cast<T*>(y.data()), z.data()});
  return z;
}

template <typename T>
void check_binary(Prim prim, long double (*reference)(long double, long double), double bound) {
  std::vector<T> base = {0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, 7.25, -7.25, 1e10, INFINITY, -INFINITY, NAN, 1.0000001, 0.9999999};
  std::vector<T> x, y;
  for (T a : base) {
    for (T b : base) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  for (int i = 0; i < 20000; ++i) {
    x.push_back(static_cast<T>(i % 141 * 0.37 + 0.01));
    y.push_back(static_cast<T>(i % 173 * 0.11 - 9.3));
  }
  std::vector<T> z = apply(prim, x, y);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(ulps(z[i], reference(x[i], y[i])), bound) << prim_name(prim) << ' ' << x[i] << ' ' << y[i] << " = " << z[i];
  }
}

TEST(MathTest, Binary) {
  check_binary<float>(Prim::kPow, std::pow, 1.5);
  check_binary<double>(Prim::kPow, std::pow, 1.5);
  check_binary<float>(Prim::kAtan2, std::atan2, 1.5);
  check_binary<double>(Prim::kAtan2, std::atan2, 1.5);
  check_binary<float>(Prim::kRem, std::fmod, 0);
  check_binary<double>(Prim::kRem, std::fmod, 0);
}

TEST(MathTest, PowersOfTwo) {
  for (bool vectors : {true, false}) {
    std::vector<float> x = arguments<float>(vectors ? 400000 : 20000);
    int64_t n = static_cast<int64_t>(x.size());
    Dims outer = vectors ? Dims() : Dims{n};
    SpecBuilder b(KernelForm::kPointwise, outer, {}, vectors ? n : 1);
    b.store(b.op(Prim::kPow, {b.constant(DType::F32, 2), b.load(DType::F32, b.dense())}), DType::F32, b.dense());
    std::vector<float> y(x.size());
    b.run({x.data(), y.data()});
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_LE(ulps(y[i], std::exp2(static_cast<long double>(x[i]))), 1.5) << "2 to the power " << x[i];
    }
  }
}

TEST(MathTest, ConstantExponents) {
  for (double exponent : {2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 2.5}) {
    SpecBuilder b(KernelForm::kPointwise, {}, {}, 100);
    int x = b.load(DType::F32, b.dense());
    b.store(b.op(Prim::kPow, {x, b.constant(DType::F32, exponent)}), DType::F32, b.dense());
    std::vector<float> in(100), out(100);
    for (int i = 0; i < 100; ++i) {
      in[i] = 0.1f + static_cast<float>(i);
    }
    b.run({in.data(), out.data()});
    for (int i = 0; i < 100; ++i) {
      EXPECT_LE(ulps(out[i], std::pow(static_cast<long double>(in[i]), exponent)), 1.5) << in[i] << " to the power " << exponent;
    }
  }
}

} // namespace

} // namespace torch_xla::cpu
