// Element types, rounding, hashes, attributes and promotion.
#include <c10/core/ScalarType.h>
#include <c10/util/TypeCast.h>
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

TEST(HashTest, ASampleOfBytesTellsContentsApart) {
  for (size_t size : {size_t{0}, size_t{3}, size_t{2048}, size_t{2049}, size_t{100000}}) {
    std::vector<unsigned char> bytes(size, 7);
    uint64_t hash = hash_sample(bytes.data(), size);
    EXPECT_EQ(hash, hash_sample(std::vector<unsigned char>(size, 7).data(), size));
    EXPECT_NE(hash, hash_sample(std::vector<unsigned char>(size + 1, 7).data(), size + 1));
    for (size_t at : {size_t{0}, size - 1}) {
      if (size) {
        bytes[at] ^= 1;
        EXPECT_NE(hash, hash_sample(bytes.data(), size)) << at << " of " << size;
        bytes[at] ^= 1;
      }
    }
  }
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

TEST(PromoteTest, LatticeIsATens) {
  for (DType a : kNative) {
    for (DType b : kNative) {
      auto want = c10::promoteTypes(static_cast<c10::ScalarType>(a), static_cast<c10::ScalarType>(b));
      EXPECT_EQ(promote_types(a, b), static_cast<DType>(want)) << dtype_name(a) << " " << dtype_name(b);
    }
  }
}

// Numbers that some releases of PyTorch convert and others refuse.
bool is_left_to_aten(double v, DType type) {
  return !is_float(type) && v >= largest_value(type) && v <= largest_value(type) + 1 && (type == DType::I64 || v > largest_value(type));
}

template <class T>
void expect_same_fits(DType type) {
  for (double v : {0.0,     -0.0,   0.5,     -1.0,   1.5,     127.5,     128.0,   255.0,   255.5,  -255.0, 32768.0, 65504.0,
                   65505.0, 0x1p31, -0x1p31, 0x1p63, -0x1p63, -0x1.8p63, 3.38e38, 3.39e38, 3.4e38, 3.5e38, -1e300,  1e308}) {
    EXPECT_EQ(fits(v, type), !c10::overflows<T>(v) && !is_left_to_aten(v, type)) << dtype_name(type) << " " << v;
  }
  for (double v : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(fits(v, type), !c10::overflows<T>(v)) << dtype_name(type) << " " << v;
    EXPECT_EQ(fits(-v, type), !c10::overflows<T>(-v)) << dtype_name(type) << " " << -v;
  }
  for (int64_t v :
       {int64_t{0},
        int64_t{1},
        int64_t{2},
        int64_t{127},
        int64_t{128},
        int64_t{255},
        int64_t{256},
        int64_t{32767},
        int64_t{32768},
        int64_t{65504},
        int64_t{65505},
        int64_t{1} << 31,
        int64_t{1} << 32,
        INT64_MAX}) {
    for (int64_t signed_v : {v, -v, -v - 1}) {
      EXPECT_EQ(fits(signed_v, type), !c10::overflows<T>(signed_v)) << dtype_name(type) << " " << signed_v;
    }
  }
}

TEST(DTypeTest, NumbersFitAsATensDo){
#define EXPECT_SAME_FITS(T, NAME) expect_same_fits<T>(static_cast<DType>(c10::ScalarType::NAME));
    AT_FORALL_SCALAR_TYPES_AND3(Bool, Half, BFloat16, EXPECT_SAME_FITS)
#undef EXPECT_SAME_FITS
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
