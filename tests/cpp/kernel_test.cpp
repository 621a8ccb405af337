// Every primitive, element type, addressing mode and loop form of the code generator against plain C++ loops.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "spec_builder.h"

namespace torch_xla::cpu {

namespace {

template <typename T>
constexpr DType type_of() {
  if constexpr (std::is_same_v<T, bool>) {
    return DType::Bool;
  } else if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? DType::F32 : DType::F64;
  } else if constexpr (std::is_same_v<T, uint8_t>) {
    return DType::U8;
  } else {
    return sizeof(T) == 1 ? DType::I8 : sizeof(T) == 2 ? DType::I16 : sizeof(T) == 4 ? DType::I32 : DType::I64;
  }
}

template <typename T>
using Memory = std::vector<std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>;

uint32_t next_random() {
  static uint32_t state = 12345;
  state = state * 1664525 + 1013904223;
  return state >> 8;
}

// Numbers that tend to be special, then small random ones.
template <typename T>
Memory<T> values(size_t count) {
  using Limits = std::numeric_limits<T>;
  Memory<T> v;
  if constexpr (std::is_floating_point_v<T>) {
    v = {0, static_cast<T>(-0.0), 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()};
  } else if constexpr (!std::is_same_v<T, bool>) {
    v = {0, 1, static_cast<T>(-1), Limits::min(), Limits::max(), 2, 3, 7, static_cast<T>(-7), 31, 64};
  }
  while (v.size() < count) {
    T small = static_cast<T>(static_cast<int>(next_random() % 200) - 100);
    v.push_back(std::is_same_v<T, bool> ? next_random() & 1 : small / (std::is_floating_point_v<T> ? 8 : 1));
  }
  v.resize(count);
  return v;
}

template <typename A, typename B>
bool same(A a, B b) {
  if constexpr (std::is_floating_point_v<A>) {
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
  }
  return a == b;
}

// All pairs of special values, as vectors and as scalars.
template <typename T, typename R>
void check_binary(Prim prim, std::function<R(T, T)> reference, size_t specials = 24) {
  Memory<T> base = values<T>(specials);
  Memory<T> x, y;
  for (auto a : base) {
    for (auto b : base) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  int64_t n = static_cast<int64_t>(x.size());
  for (bool vectors : {true, false}) {
    SpecBuilder k(KernelForm::kPointwise, vectors ? Dims() : Dims{n}, {}, vectors ? n : 1);
    int a = k.load(type_of<T>(), k.dense());
    int b = k.load(type_of<T>(), k.dense());
    k.store(k.op(prim, {a, b}), type_of<R>(), k.dense());
    Memory<R> z(x.size());
    k.run({x.data(), y.data(), z.data()});
    for (size_t i = 0; i < x.size(); ++i) {
      R expected = reference(static_cast<T>(x[i]), static_cast<T>(y[i]));
      ASSERT_TRUE(same(static_cast<R>(z[i]), expected)) << prim_name(prim) << ' ' << dtype_name(type_of<T>()) << '(' << +x[i] << ", "
                                                        << +y[i] << ") = " << +z[i] << ", not " << +expected;
    }
  }
}

template <typename T, typename R>
void check_unary(Prim prim, std::function<R(T)> reference) {
  Memory<T> x = values<T>(75);
  SpecBuilder k(KernelForm::kPointwise, {}, {}, 75);
  k.store(k.op(prim, {k.load(type_of<T>(), k.dense())}, type_of<R>()), type_of<R>(), k.dense());
  Memory<R> z(x.size());
  k.run({x.data(), z.data()});
  for (size_t i = 0; i < x.size(); ++i) {
    R expected = reference(static_cast<T>(x[i]));
    ASSERT_TRUE(same(static_cast<R>(z[i]), expected))
        << prim_name(prim) << ' ' << dtype_name(type_of<T>()) << '(' << +x[i] << ") = " << +z[i] << ", not " << +expected;
  }
}

template <typename T>
void check_comparisons() {
  check_binary<T, bool>(Prim::kEq, [](T a, T b) { return a == b; });
  check_binary<T, bool>(Prim::kNe, [](T a, T b) { return a != b; });
  check_binary<T, bool>(Prim::kLt, [](T a, T b) { return a < b; });
  check_binary<T, bool>(Prim::kLe, [](T a, T b) { return a <= b; });
  check_binary<T, bool>(Prim::kGt, [](T a, T b) { return a > b; });
  check_binary<T, bool>(Prim::kGe, [](T a, T b) { return a >= b; });
}

template <typename T>
void check_float() {
  check_comparisons<T>();
  check_binary<T, T>(Prim::kAdd, [](T a, T b) { return a + b; });
  check_binary<T, T>(Prim::kSub, [](T a, T b) { return a - b; });
  check_binary<T, T>(Prim::kMul, [](T a, T b) { return a * b; });
  check_binary<T, T>(Prim::kDiv, [](T a, T b) { return a / b; });
  auto is_nan = [](T a, T b) { return std::isnan(a) || std::isnan(b); };
  // Of equal numbers the second one is taken: maximum(0, -0) is -0.
  check_binary<T, T>(Prim::kMax, [=](T a, T b) { return is_nan(a, b) ? NAN : a > b ? a : b; });
  check_binary<T, T>(Prim::kMin, [=](T a, T b) { return is_nan(a, b) ? NAN : a < b ? a : b; });
  check_unary<T, T>(Prim::kNeg, [](T a) { return -a; });
  check_unary<T, T>(Prim::kAbs, [](T a) { return std::abs(a); });
  check_unary<T, T>(Prim::kSign, [](T a) { return static_cast<T>((a > 0) - (a < 0)); });
  check_unary<T, T>(Prim::kCeil, [](T a) { return std::ceil(a); });
  check_unary<T, T>(Prim::kFloor, [](T a) { return std::floor(a); });
  check_unary<T, T>(Prim::kTrunc, [](T a) { return std::trunc(a); });
  check_unary<T, T>(Prim::kRoundEven, [](T a) { return std::nearbyint(a); });
  check_unary<T, bool>(Prim::kIsFinite, [](T a) { return std::isfinite(a); });
  check_unary<T, bool>(Prim::kIsNan, [](T a) { return std::isnan(a); });
}

TEST(KernelPrimitives, Floats) {
  check_float<float>();
  check_float<double>();
}

template <typename T>
T integer_power(T base, T exponent) {
  if (exponent < 0) {
    return base == 1 ? 1 : base == static_cast<T>(-1) ? (exponent & 1 ? -1 : 1) : 0;
  }
  std::make_unsigned_t<T> result = 1;
  for (uint64_t e = exponent, b = base; e; e >>= 1, b *= b) {
    result = e & 1 ? static_cast<std::make_unsigned_t<T>>(result * b) : result;
  }
  return static_cast<T>(result);
}

template <typename T>
void check_integer() {
  using U = uint64_t; // wraps
  constexpr int bits = 8 * sizeof(T);
  check_comparisons<T>();
  check_binary<T, T>(Prim::kAdd, [](T a, T b) { return static_cast<T>(U(a) + U(b)); });
  check_binary<T, T>(Prim::kSub, [](T a, T b) { return static_cast<T>(U(a) - U(b)); });
  check_binary<T, T>(Prim::kMul, [](T a, T b) { return static_cast<T>(U(a) * U(b)); });
  auto divide = [](T a, T b) {
    bool negates = std::is_signed_v<T> && b == static_cast<T>(-1);
    return b == 0 ? T(0) : negates ? static_cast<T>(-U(a)) : static_cast<T>(a / b);
  };
  check_binary<T, T>(Prim::kDiv, divide);
  check_binary<T, T>(Prim::kRem, [=](T a, T b) { return b == 0 ? T(0) : static_cast<T>(U(a) - U(divide(a, b)) * U(b)); });
  check_binary<T, T>(Prim::kPow, integer_power<T>);
  check_binary<T, T>(Prim::kMax, [](T a, T b) { return std::max(a, b); });
  check_binary<T, T>(Prim::kMin, [](T a, T b) { return std::min(a, b); });
  check_binary<T, T>(Prim::kAnd, [](T a, T b) { return static_cast<T>(a & b); });
  check_binary<T, T>(Prim::kOr, [](T a, T b) { return static_cast<T>(a | b); });
  check_binary<T, T>(Prim::kXor, [](T a, T b) { return static_cast<T>(a ^ b); });
  auto outside = [](T n) { return static_cast<std::make_unsigned_t<T>>(n) >= bits; };
  check_binary<T, T>(Prim::kShl, [=](T a, T n) { return outside(n) ? T(0) : static_cast<T>(U(a) << n); });
  check_binary<T, T>(Prim::kShrA, [=](T a, T n) { return outside(n) ? static_cast<T>(a < 0 ? -1 : 0) : static_cast<T>(a >> n); });
  auto logical = [](T a, T n) { return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) >> n); };
  check_binary<T, T>(Prim::kShrL, [=](T a, T n) { return outside(n) ? T(0) : logical(a, n); });
  check_unary<T, T>(Prim::kNeg, [](T a) { return static_cast<T>(-U(a)); });
  check_unary<T, T>(Prim::kAbs, [](T a) { return a < 0 ? static_cast<T>(-U(a)) : a; });
  check_unary<T, T>(Prim::kNot, [](T a) { return static_cast<T>(~a); });
  check_unary<T, T>(Prim::kSign, [](T a) { return static_cast<T>((a > 0) - (a < 0)); });
}

TEST(KernelPrimitives, Integers) {
  check_integer<uint8_t>();
  check_integer<int8_t>();
  check_integer<int16_t>();
  check_integer<int32_t>();
  check_integer<int64_t>();
}

TEST(KernelPrimitives, Bools) {
  check_comparisons<bool>();
  check_binary<bool, bool>(Prim::kAnd, [](bool a, bool b) { return a && b; });
  check_binary<bool, bool>(Prim::kOr, [](bool a, bool b) { return a || b; });
  check_binary<bool, bool>(Prim::kXor, [](bool a, bool b) { return a != b; });
  check_binary<bool, bool>(Prim::kAdd, [](bool a, bool b) { return a || b; });
  check_binary<bool, bool>(Prim::kMul, [](bool a, bool b) { return a && b; });
  check_unary<bool, bool>(Prim::kNot, [](bool a) { return !a; });
}

TEST(KernelPrimitives, ConstantDivisors) {
  for (int divisor : {1, -1, 3, 8, -7, 0}) {
    SpecBuilder k(KernelForm::kPointwise, {}, {}, 40);
    int x = k.load(DType::I64, k.dense());
    k.store(k.op(Prim::kDiv, {x, k.constant(DType::I64, divisor)}), DType::I64, k.dense());
    auto in = values<int64_t>(40);
    std::vector<int64_t> out(40);
    k.run({in.data(), out.data()});
    for (size_t i = 0; i < 40; ++i) {
      int64_t expected = divisor == 0 ? 0 : divisor == -1 ? static_cast<int64_t>(-static_cast<uint64_t>(in[i])) : in[i] / divisor;
      EXPECT_EQ(out[i], expected) << in[i] << " / " << divisor;
    }
  }
}

TEST(KernelPrimitives, Conversions) {
  // The values that C converts without undefined behaviour.
  auto to_int = [](float x) { return std::abs(x) < 2e9f ? static_cast<int>(x) : 0; };
  SpecBuilder k(KernelForm::kPointwise, {}, {}, 75);
  int x = k.load(DType::F32, k.dense());
  k.store(k.op(Prim::kConvert, {x}, DType::I32), DType::I32, k.dense());
  k.store(k.op(Prim::kConvert, {x}, DType::U8), DType::U8, k.dense());
  k.store(k.op(Prim::kConvert, {x}, DType::I64), DType::I64, k.dense());
  auto in = values<float>(75);
  std::vector<int32_t> i32(75);
  std::vector<uint8_t> u8(75);
  std::vector<int64_t> i64(75);
  k.run({in.data(), i32.data(), u8.data(), i64.data()});
  for (size_t i = 0; i < 75; ++i) {
    if (std::isfinite(in[i])) {
      EXPECT_EQ(i32[i], to_int(in[i]));
      EXPECT_EQ(u8[i], static_cast<uint8_t>(to_int(in[i])));
      EXPECT_EQ(i64[i], to_int(in[i]));
    }
  }
  check_unary<float, bool>(Prim::kConvert, [](float a) { return a != 0; });
  check_unary<float, double>(Prim::kConvert, [](float a) { return static_cast<double>(a); });
  check_unary<double, float>(Prim::kConvert, [](double a) { return static_cast<float>(a); });
  check_unary<int64_t, float>(Prim::kConvert, [](int64_t a) { return static_cast<float>(a); });
  check_unary<uint8_t, float>(Prim::kConvert, [](uint8_t a) { return static_cast<float>(a); });
  check_unary<int8_t, double>(Prim::kConvert, [](int8_t a) { return static_cast<double>(a); });
  check_unary<bool, float>(Prim::kConvert, [](bool a) { return static_cast<float>(a); });
  check_unary<bool, int64_t>(Prim::kConvert, [](bool a) { return static_cast<int64_t>(a); });
  check_unary<int64_t, uint8_t>(Prim::kConvert, [](int64_t a) { return static_cast<uint8_t>(a); });
  check_unary<int16_t, int64_t>(Prim::kConvert, [](int16_t a) { return static_cast<int64_t>(a); });
  check_unary<int32_t, bool>(Prim::kConvert, [](int32_t a) { return a != 0; });
}

TEST(KernelPrimitives, Select) {
  SpecBuilder k(KernelForm::kPointwise, {}, {}, 37);
  int p = k.load(DType::Bool, k.dense());
  int a = k.load(DType::I32, k.dense());
  k.store(k.op(Prim::kSelect, {p, a, k.constant(DType::I32, -5)}), DType::I32, k.dense());
  auto pred = values<bool>(37);
  auto x = values<int32_t>(37);
  std::vector<int32_t> out(37);
  k.run({pred.data(), x.data(), out.data()});
  for (size_t i = 0; i < 37; ++i) {
    EXPECT_EQ(out[i], pred[i] ? x[i] : -5);
  }
}

uint16_t bf16_of(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

TEST(KernelReducedFloats, Bf16) {
  SpecBuilder k(KernelForm::kPointwise, {}, {}, 75);
  int x = k.op(Prim::kConvert, {k.load(DType::BF16, k.dense())}, DType::F32);
  int y = k.op(Prim::kConvert, {k.op(Prim::kMul, {x, k.constant(DType::F32, 1.2345678)})}, DType::BF16);
  k.store(y, DType::BF16, k.dense());
  k.store(k.op(Prim::kConvert, {y}, DType::F32), DType::F32, k.dense());
  k.store(x, DType::F32, k.dense());
  std::vector<uint16_t> in, out(75);
  for (float f : values<float>(75)) {
    in.push_back(bf16_of(f));
  }
  in[20] = 0x7f7f; // the largest number: overflows
  in[21] = 0x7fc1; // NaN
  in[22] = 0x0001; // subnormal
  std::vector<float> rounded(75), wide(75);
  k.run({in.data(), out.data(), rounded.data(), wide.data()});
  for (size_t i = 0; i < 75; ++i) {
    float f = std::bit_cast<float>(static_cast<uint32_t>(in[i]) << 16);
    EXPECT_TRUE(same(wide[i], f));
    if (std::isnan(f)) {
      EXPECT_TRUE((out[i] & 0x7fff) > 0x7f80);
    } else {
      EXPECT_EQ(out[i], bf16_of(f * 1.2345678f)) << f;
      EXPECT_EQ(rounded[i], std::bit_cast<float>(static_cast<uint32_t>(out[i]) << 16));
    }
  }
}

TEST(KernelReducedFloats, F16) {
  SpecBuilder k(KernelForm::kPointwise, {}, {}, 75);
  int x = k.load(DType::F64, k.dense());
  int y = k.op(Prim::kConvert, {x}, DType::F16);
  k.store(y, DType::F16, k.dense());
  k.store(k.op(Prim::kConvert, {y}, DType::F32), DType::F32, k.dense());
  auto in = values<double>(75);
  in[20] = 70000;
  in[21] = 1e-7;
  in[22] = 2049;
  std::vector<_Float16> out(75);
  std::vector<float> rounded(75);
  k.run({in.data(), out.data(), rounded.data()});
  for (size_t i = 0; i < 75; ++i) {
    float expected = static_cast<float>(static_cast<_Float16>(static_cast<float>(in[i])));
    EXPECT_TRUE(same(static_cast<float>(out[i]), expected)) << in[i];
    EXPECT_TRUE(same(rounded[i], expected)) << in[i];
  }
}

// Extents 1 to 40 with several input strides; guard elements behind the output must stay.
template <typename T>
void check_strides() {
  for (int64_t n = 1; n <= 40; ++n) {
    for (int64_t stride : {1, 0, 2, 3, -1, -2}) {
      SpecBuilder k(KernelForm::kPointwise, {3}, {}, n);
      int64_t offset = stride < 0 ? -stride * (n - 1) : 0;
      int x = k.load(type_of<T>(), {200, stride});
      k.store(x, type_of<T>(), {n + 1, 1});
      k.store(x, type_of<T>(), {3 * n, 3});
      Memory<T> in = values<T>(600);
      Memory<T> packed(3 * (n + 1), 1), spread(9 * n + 3, 1);
      k.run({in.data() + offset, packed.data(), spread.data() + 1});
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_TRUE(same(packed[r * (n + 1) + i], in[200 * r + offset + i * stride])) << n << " stride " << stride << " at " << i;
          ASSERT_TRUE(same(spread[1 + r * 3 * n + 3 * i], in[200 * r + offset + i * stride])) << n << " stride " << stride << " at " << i;
          ASSERT_EQ(spread[2 + r * 3 * n + 3 * i], 1);
        }
        ASSERT_EQ(packed[r * (n + 1) + n], 1) << "written beyond the row";
      }
    }
  }
}

TEST(KernelAddresses, Strides) {
  check_strides<float>();
  check_strides<int64_t>();
  check_strides<bool>();
}

TEST(KernelAddresses, ManyOuterLoops) {
  SpecBuilder k(KernelForm::kPointwise, {2, 1, 3, 4}, {}, 18);
  int x = k.load(DType::I32, {1, 0, 2, 6, 24});
  int i = k.iota(DType::I32, {1000, 0, 100, 10, 1});
  k.store(k.op(Prim::kAdd, {x, i}), DType::I32, k.dense());
  std::vector<int32_t> in(24 * 18), out(24 * 18);
  std::iota(in.begin(), in.end(), 0);
  k.run({in.data(), out.data()});
  for (int a = 0, at = 0; a < 2; ++a) {
    for (int b = 0; b < 3; ++b) {
      for (int c = 0; c < 4; ++c) {
        for (int d = 0; d < 18; ++d, ++at) {
          ASSERT_EQ(out[at], in[a + 2 * b + 6 * c + 24 * d] + 1000 * a + 100 * b + 10 * c + d);
        }
      }
    }
  }
}

TEST(KernelAddresses, InPlaceAndParts) {
  SpecBuilder k(KernelForm::kPointwise, {}, {}, 200);
  int x = k.load(DType::F32, k.dense());
  int s = k.scalar(DType::F32);
  k.store(k.op(Prim::kAdd, {k.op(Prim::kMul, {x, s}), x}), DType::F32, k.dense());
  std::vector<float> v(200, 3);
  void* buffers[] = {v.data(), v.data()};
  uint64_t scalars[] = {std::bit_cast<uint64_t>(2.0)};
  Kernel fn = compile_kernel(k.spec);
  fn(buffers, scalars, 0, 64);
  fn(buffers, scalars, 64, 101);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(v[i], i < 101 ? 9 : 3) << i;
  }
}

TEST(KernelAddresses, ScalarsAndIota) {
  SpecBuilder k(KernelForm::kPointwise, {}, {}, 33);
  int i = k.iota(DType::F32, {2});
  int s = k.scalar(DType::I64);
  k.store(k.op(Prim::kAdd, {k.op(Prim::kConvert, {s}, DType::F32), i}), DType::F32, k.dense());
  std::vector<float> out(33);
  k.run({out.data()}, {static_cast<uint64_t>(-100)});
  for (int n = 0; n < 33; ++n) {
    EXPECT_EQ(out[n], -100 + 2 * n);
  }
}

std::vector<float> noise(int64_t n) {
  std::vector<float> v(n);
  for (float& x : v) {
    x = static_cast<float>(next_random() % 100000) / 10000 - 5;
  }
  return v;
}

void check_softmax(int64_t rows, Dims mid, int64_t inner) {
  SpecBuilder k(KernelForm::kRow, {rows}, mid, inner);
  int64_t n = num_elements(mid) * inner;
  int x = k.load(DType::F32, k.dense());
  int e = k.op(Prim::kExp, {k.op(Prim::kSub, {x, k.op(Prim::kReduceMax, {x})})});
  int sum = k.op(Prim::kReduceSum, {e});
  k.store(k.op(Prim::kDiv, {e, sum}), DType::F32, k.dense());
  k.store(sum, DType::F32, k.per_row());
  auto in = noise(rows * n);
  std::vector<float> out = in, sums(rows);
  k.run({out.data(), out.data(), sums.data()}); // in place
  for (int64_t r = 0; r < rows; ++r) {
    double top = *std::max_element(&in[r * n], &in[r * n] + n), total = 0;
    for (int64_t i = 0; i < n; ++i) {
      total += std::exp(in[r * n + i] - top);
    }
    ASSERT_NEAR(sums[r], total, 1e-5 * total);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_NEAR(out[r * n + i], std::exp(in[r * n + i] - top) / total, 1e-6) << rows << 'x' << n << " at " << r << ',' << i;
    }
  }
}

TEST(KernelRows, Softmax) {
  for (int64_t n : {1, 2, 7, 15, 16, 17, 64, 100, 128, 1000, 70000}) {
    check_softmax(3, {}, n);
  }
  for (int64_t n : {1, 15, 16, 37, 128, 256}) {
    check_softmax(301, {}, n); // enough rows that two are computed at a time, and one is left over
  }
  check_softmax(2, {5}, 16);
  check_softmax(2, {3, 4}, 21);
  check_softmax(1, {2, 3, 2, 2}, 5);
}

void check_layer_norm(int64_t rows, int64_t n, DType gamma) {
  SpecBuilder k(KernelForm::kRow, {rows}, {}, n);
  int x = k.op(Prim::kAdd, {k.load(DType::F32, k.dense()), k.load(DType::F32, k.dense())});
  k.store(x, DType::F32, k.dense());
  int scale = k.constant(DType::F32, 1.0 / static_cast<double>(n));
  int mean = k.op(Prim::kMul, {k.op(Prim::kReduceSum, {x}), scale});
  int centered = k.op(Prim::kSub, {x, mean});
  int variance = k.op(Prim::kMul, {k.op(Prim::kReduceSum, {k.op(Prim::kMul, {centered, centered})}), scale});
  int rstd = k.op(Prim::kRsqrt, {k.op(Prim::kAdd, {variance, k.constant(DType::F32, 1e-5)})});
  int g = k.load(gamma, k.per_inner());
  g = gamma == DType::F32 ? g : k.op(Prim::kConvert, {g}, DType::F32);
  k.store(k.op(Prim::kMul, {k.op(Prim::kMul, {centered, rstd}), g}), DType::F32, k.dense());
  k.store(mean, DType::F32, k.per_row());
  k.store(rstd, DType::F32, k.per_row());
  auto a = noise(rows * n), b = noise(rows * n), gf = noise(n);
  std::vector<double> gd(gf.begin(), gf.end());
  std::vector<float> residual = a, out(rows * n), means(rows), rstds(rows);
  void* weights = gamma == DType::F32 ? static_cast<void*>(gf.data()) : gd.data();
  k.run({residual.data(), b.data(), residual.data(), weights, out.data(), means.data(), rstds.data()}); // the sum over an operand
  for (int64_t r = 0; r < rows; ++r) {
    double m = 0, v = 0;
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(residual[r * n + i], a[r * n + i] + b[r * n + i]);
      m += residual[r * n + i] / static_cast<double>(n);
    }
    for (int64_t i = 0; i < n; ++i) {
      v += (residual[r * n + i] - m) * (residual[r * n + i] - m) / static_cast<double>(n);
    }
    ASSERT_NEAR(means[r], m, 1e-5);
    ASSERT_NEAR(rstds[r], 1 / std::sqrt(v + 1e-5), 1e-4 / std::sqrt(v + 1e-5));
    for (int64_t i = 0; i < n && n > 1; ++i) {
      ASSERT_NEAR(out[r * n + i], (residual[r * n + i] - m) / std::sqrt(v + 1e-5) * gf[i], 1e-4);
    }
  }
}

TEST(KernelRows, LayerNorm) {
  for (int64_t n : {1, 5, 16, 33, 128, 1024, 1500}) {
    check_layer_norm(259, 80, DType::F32);
    check_layer_norm(4, n, DType::F32);
    check_layer_norm(4, n, DType::F64);
  }
}

template <typename T>
void check_row_reduce(Prim prim, std::function<T(T, T)> combine, T init, Dims mid, int64_t inner) {
  SpecBuilder k(KernelForm::kRow, {2, 2}, mid, inner);
  k.store(k.op(prim, {k.load(type_of<T>(), k.dense())}), type_of<T>(), k.per_row());
  int64_t n = num_elements(mid) * inner;
  Memory<T> in(4 * n), out(4, 9);
  for (auto& x : in) {
    uint32_t random = next_random();
    x = std::is_same_v<T, bool> ? random % 20 != 0 : static_cast<T>(prim == Prim::kReduceProd ? 1 + random % 3 / 2 : random % 50);
  }
  k.run({in.data(), out.data()});
  for (int64_t r = 0; r < 4; ++r) {
    T expected = init;
    for (int64_t i = 0; i < n; ++i) {
      expected = combine(expected, static_cast<T>(in[r * n + i]));
    }
    ASSERT_EQ(static_cast<T>(out[r]), expected) << prim_name(prim) << ' ' << dtype_name(type_of<T>()) << " of " << n;
  }
}

// Integers wrap, without the undefined overflow of signed ones.
template <typename T>
T product(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

template <typename T>
void check_row_reduces(Dims mid, int64_t inner) {
  check_row_reduce<T>(Prim::kReduceSum, [](T a, T b) { return static_cast<T>(a + b); }, 0, mid, inner);
  check_row_reduce<T>(Prim::kReduceProd, product<T>, 1, mid, inner);
  T low = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  T high = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  check_row_reduce<T>(Prim::kReduceMax, [](T a, T b) { return std::max(a, b); }, low, mid, inner);
  check_row_reduce<T>(Prim::kReduceMin, [](T a, T b) { return std::min(a, b); }, high, mid, inner);
}

TEST(KernelRows, Reductions) {
  std::vector<std::pair<Dims, int64_t>> shapes = {
      {{}, 0}, {{0}, 5}, {{}, 1}, {{}, 40}, {{7}, 3}, {{2, 3}, 16}, {{70}, 33}, {{600}, 2}, {{}, 9000}};
  for (auto& [mid, inner] : shapes) {
    check_row_reduces<int32_t>(mid, inner);
    check_row_reduces<int64_t>(mid, inner);
    check_row_reduces<uint8_t>(mid, inner);
    check_row_reduce<bool>(Prim::kReduceAnd, [](bool a, bool b) { return a && b; }, true, mid, inner);
    check_row_reduce<bool>(Prim::kReduceOr, [](bool a, bool b) { return a || b; }, false, mid, inner);
    check_row_reduce<float>(Prim::kReduceSum, [](float a, float b) { return a + b; }, 0, mid, inner);
    check_row_reduce<float>(Prim::kReduceMax, [](float a, float b) { return std::max(a, b); }, -INFINITY, mid, inner);
  }
}

TEST(KernelRows, NanWins) {
  for (int64_t at : {0, 5, 16, 39}) {
    SpecBuilder k(KernelForm::kRow, {1}, {}, 40);
    int x = k.load(DType::F32, k.dense());
    k.store(k.op(Prim::kReduceMax, {x}), DType::F32, k.per_row());
    k.store(k.op(Prim::kReduceMin, {x}), DType::F32, k.per_row());
    auto in = noise(40);
    in[at] = NAN;
    float top = 0, bottom = 0;
    k.run({in.data(), &top, &bottom});
    EXPECT_TRUE(std::isnan(top) && std::isnan(bottom)) << at;
  }
}

TEST(KernelRows, LongSumsAreAccurate) {
  int64_t n = 1 << 22;
  SpecBuilder k(KernelForm::kRow, {}, {}, n);
  k.store(k.op(Prim::kReduceSum, {k.load(DType::F32, k.dense())}), DType::F32, k.per_row());
  std::vector<float> in(n, 0.1f);
  float out = 0;
  k.run({in.data(), &out});
  EXPECT_NEAR(out / (0.1f * static_cast<double>(n)), 1, 3e-6);
}

// A mean over rows that is subtracted, with a weight that varies with mid only: all levels of values.
TEST(KernelRows, MidValues) {
  SpecBuilder k(KernelForm::kRow, {3}, {4}, 20);
  int x = k.load(DType::F32, k.dense());
  int w = k.op(Prim::kExp, {k.load(DType::F32, {0, 1, 0})});
  int sum = k.op(Prim::kReduceSum, {k.op(Prim::kMul, {x, w})});
  k.store(k.op(Prim::kMul, {k.op(Prim::kSub, {x, sum}), w}), DType::F32, k.dense());
  k.store(k.op(Prim::kMul, {w, sum}), DType::F32, {4, 1, 0});
  auto in = noise(240), weights = noise(4);
  std::vector<float> out(240), products(12);
  k.run({in.data(), weights.data(), out.data(), products.data()});
  for (int r = 0; r < 3; ++r) {
    double total = 0;
    for (int i = 0; i < 80; ++i) {
      total += in[r * 80 + i] * std::exp(weights[i / 20]);
    }
    for (int i = 0; i < 80; ++i) {
      double factor = std::exp(weights[i / 20]);
      ASSERT_NEAR(out[r * 80 + i], (in[r * 80 + i] - total) * factor, 1e-4 * (1 + std::abs(total)) * factor);
      ASSERT_NEAR(products[r * 4 + i / 20], factor * total, 1e-4 * (1 + std::abs(total)) * factor);
    }
  }
}

void check_columns(int64_t outer, Dims mid, int64_t inner) {
  SpecBuilder k(KernelForm::kColumn, {outer}, mid, inner);
  int64_t m = num_elements(mid);
  int x = k.load(DType::F32, k.dense());
  int centered = k.op(Prim::kSub, {x, k.load(DType::F32, k.per_inner())});
  int sum = k.op(Prim::kReduceSum, {centered});
  int squares = k.op(Prim::kReduceSum, {k.op(Prim::kMul, {centered, centered})});
  k.store(k.op(Prim::kMul, {sum, k.load(DType::F32, k.per_inner())}), DType::F32, k.per_column());
  k.store(squares, DType::F32, k.per_column());
  k.store(centered, DType::F32, k.dense());
  auto in = noise(outer * m * inner), mean = noise(inner), weight = noise(inner);
  std::vector<float> sums(outer * inner + 1, 7), square_sums(outer * inner + 1, 7), out = in;
  k.run({out.data(), mean.data(), weight.data(), sums.data(), square_sums.data(), out.data()}); // in place
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      double s = 0, q = 0;
      for (int64_t j = 0; j < m; ++j) {
        float c = in[(o * m + j) * inner + i] - mean[i];
        ASSERT_EQ(out[(o * m + j) * inner + i], c);
        s += c;
        q += c * c;
      }
      ASSERT_NEAR(sums[o * inner + i], s * weight[i], 1e-4 + 1e-5 * static_cast<double>(m)) << outer << ' ' << m << ' ' << inner;
      ASSERT_NEAR(square_sums[o * inner + i], q, 1e-4 + 1e-5 * q);
    }
  }
  ASSERT_EQ(sums.back(), 7);
}

TEST(KernelColumns, Sums) {
  for (int64_t inner : {1, 3, 16, 40, 64, 65, 100, 128, 200}) {
    check_columns(2, {5}, inner);
    check_columns(1, {3, 7}, inner);
    check_columns(1, {0}, inner);
  }
  check_columns(1, {70}, 64);
  check_columns(2, {2000}, 70);
}

TEST(KernelColumns, Units) {
  SpecBuilder k(KernelForm::kColumn, {3}, {2}, 130);
  k.store(k.op(Prim::kReduceMax, {k.load(DType::I64, k.dense())}), DType::I64, k.per_column());
  ASSERT_EQ(k.spec.units(), 9);
  std::vector<int64_t> in(780), out(390, -1);
  std::iota(in.begin(), in.end(), 0);
  void* buffers[] = {in.data(), out.data()};
  compile_kernel(k.spec)(buffers, nullptr, 4, 6); // the second and third block of the second row
  for (int64_t i = 0; i < 390; ++i) {
    bool computed = i >= 130 + 64 && i < 260;
    EXPECT_EQ(out[i], computed ? i / 130 * 260 + 130 + i % 130 : -1) << i;
  }
}

std::array<uint32_t, 4> philox(uint64_t seed, uint64_t offset, uint64_t index) {
  std::array<uint32_t, 4> c = {uint32_t(index), uint32_t(index >> 32), uint32_t(offset), uint32_t(offset >> 32)};
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = 0xd2511f53ull * c[0], p1 = 0xcd9e8d57ull * c[2];
    c = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1, uint32_t(p0)};
    k0 += 0x9e3779b9;
    k1 += 0xbb67ae85;
  }
  return c;
}

TEST(KernelRandom, Philox) {
  EXPECT_EQ(philox(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8})); // of Random123
  SpecBuilder k(KernelForm::kPointwise, {}, {}, 50);
  int seed = k.scalar(DType::I64);
  int offset = k.scalar(DType::I64);
  for (int lane = 0; lane < 4; ++lane) {
    k.store(k.random(seed, offset, {int64_t{1} << 31}, lane), DType::I32, k.dense());
  }
  for (uint64_t s : {uint64_t{0}, ~uint64_t{0}, uint64_t{0x123456789abcdef}}) {
    std::vector<std::vector<uint32_t>> out(4, std::vector<uint32_t>(50));
    k.run({out[0].data(), out[1].data(), out[2].data(), out[3].data()}, {s, s / 3});
    for (uint64_t i = 0; i < 50; ++i) {
      for (int lane = 0; lane < 4; ++lane) {
        ASSERT_EQ(out[lane][i], philox(s, s / 3, i << 31)[lane]) << i << " lane " << lane;
      }
    }
  }
}

} // namespace

} // namespace torch_xla::cpu
