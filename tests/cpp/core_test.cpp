// Element types, rounding, hashes, attributes and promotion.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/errors.h"
#include "ir/promote.h"

namespace torch_xla {
namespace {

constexpr DType kNative[] = {
    DType::U8, DType::I8, DType::I16, DType::I32, DType::I64, DType::F16, DType::F32, DType::F64, DType::Bool, DType::BF16};

TEST(DTypeTest, NamesReadBack) {
  for (DType t : kNative) {
    std::string name = dtype_name(t);
    EXPECT_EQ(find_dtype(name.data(), name.size()), t);
  }
  EXPECT_EQ(find_dtype("f33", 3), DType::Undefined);
}

TEST(DTypeTest, RoundsToNearestEven) {
  EXPECT_EQ(round_to(DType::F32, 0.1), static_cast<double>(0.1f));
  EXPECT_EQ(round_to(DType::BF16, 1.0 + 0x1p-8), 1.0);
  EXPECT_EQ(round_to(DType::BF16, 1.0 + 3 * 0x1p-8), 1.0 + 0x1p-6);
  EXPECT_EQ(round_to(DType::F16, 65519.0), 65504.0);
  EXPECT_EQ(round_to(DType::F16, 65520.0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(round_to(DType::F16, 0x1.8p-25), 0x1p-24); // subnormal
  EXPECT_TRUE(std::signbit(round_to(DType::F16, -0x1p-26)));
  EXPECT_TRUE(std::isnan(round_to(DType::BF16, std::nan(""))));
}

TEST(DTypeTest, IntegersWrapAround) {
  EXPECT_EQ(wrap_to(DType::U8, 257), 1);
  EXPECT_EQ(wrap_to(DType::I8, 128), -128);
  EXPECT_EQ(wrap_to(DType::I64, INT64_MIN), INT64_MIN);
  EXPECT_EQ(wrap_to(DType::Bool, 4), 1);
}

TEST(HashTest, DependsOnOrderAndKind) {
  Hash128 a, b;
  a.add(1), a.add(2);
  b.add(2), b.add(1);
  EXPECT_NE(a, b);
  EXPECT_EQ(a.hex().size(), 32u);
  Hash128 i, d;
  hash_attr(int64_t{1}, i);
  hash_attr(1.0, d);
  EXPECT_NE(i, d);
}

TEST(AttrTest, Text) {
  EXPECT_EQ(attr_text({}), "none");
  EXPECT_EQ(attr_text(true), "true");
  EXPECT_EQ(attr_text(int64_t{-3}), "-3");
  EXPECT_EQ(attr_text(3.0), "0x1.8p+1");
  EXPECT_EQ(attr_text(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(attr_text(std::vector<int64_t>{1, 2}), "[1, 2]");
  EXPECT_EQ(attr_text(std::vector<bool>{true, false}), "[true, false]");
  EXPECT_EQ(attr_text(std::string("a\"b\\\n")), "\"a\\\"b\\\\\\x0a\"");
}

TEST(PromoteTest, Lattice) {
  for (DType a : kNative) {
    EXPECT_EQ(promote_types(a, a), a);
    EXPECT_EQ(promote_types(DType::Bool, a), a);
    EXPECT_EQ(promote_types(a, DType::F64), DType::F64);
    for (DType b : kNative) {
      EXPECT_EQ(promote_types(a, b), promote_types(b, a));
    }
  }
  EXPECT_EQ(promote_types(DType::U8, DType::I8), DType::I16);
  EXPECT_EQ(promote_types(DType::U8, DType::I16), DType::I16);
  EXPECT_EQ(promote_types(DType::I64, DType::F16), DType::F16);
  EXPECT_EQ(promote_types(DType::F16, DType::BF16), DType::F32);
  EXPECT_EQ(promote_types(DType::BF16, DType::F32), DType::F32);
}

TEST(PromoteTest, Categories) {
  Graph g;
  ValueId i32 = g.add_parameter({DType::I32, {3}});
  ValueId bf16 = g.add_parameter({DType::BF16, {3}});
  ValueId mask = g.add_parameter({DType::Bool, {3}});
  ValueId f64_0d = g.add_parameter({DType::F64, {}});
  ValueId i64_0d = g.add_parameter({DType::I64, {}});
  ValueId number = g.add_scalar(DType::F64);
  ValueId whole = g.add_scalar(DType::I64);
  auto of = [&](std::vector<ValueId> operands) { return promote(g, operands); };
  EXPECT_EQ(of({i32, number}), DType::F64);
  EXPECT_EQ(of({i32, whole}), DType::I32);
  EXPECT_EQ(of({mask, whole}), DType::I64);
  EXPECT_EQ(of({bf16, f64_0d}), DType::BF16);
  EXPECT_EQ(of({i32, f64_0d}), DType::F64);
  EXPECT_EQ(of({i32, i64_0d}), DType::I32);
  EXPECT_EQ(of({i64_0d, number}), DType::F64);
  EXPECT_EQ(of({f64_0d, number}), DType::F64);
  EXPECT_EQ(of({number, whole}), DType::F64);
  EXPECT_EQ(of({bf16, i32}), DType::BF16);
  EXPECT_EQ(of({i32, kNoValue}), DType::I32);
  EXPECT_EQ(of({bf16, number}), DType::BF16);
  EXPECT_EQ(of({mask, i32, whole}), DType::I32);
}

TEST(BroadcastTest, FollowsNumpyAndATensWords) {
  EXPECT_EQ(broadcast_dims({3, 1}, {4}), (Dims{3, 4}));
  EXPECT_EQ(broadcast_dims({}, {2}), (Dims{2}));
  EXPECT_EQ(broadcast_dims({1}, {0}), (Dims{0}));
  try {
    broadcast_dims({3}, {2, 4});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1");
  }
}

} // namespace
} // namespace torch_xla
