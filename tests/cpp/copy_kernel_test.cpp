// Copies by the functions that no code is made for, against a copy element by element, whole and in parts.
#include "engine/cpu/copy_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "spec_builder.h"

namespace torch_xla::cpu {
namespace {

struct Case {
  const char* title;
  Dims outer;
  int64_t inner;
  Dims from; // strides by loop
  Dims to;
};

KernelSpec make_spec(const Case& c, DType dtype) {
  SpecBuilder b(KernelForm::kPointwise, c.outer, {}, c.inner);
  b.store(b.load(dtype, c.from), dtype, c.to);
  return b.spec;
}

// The positions of all elements, in the order of the loops.
std::vector<size_t> find_elements(const Dims& extents, const Dims& strides) {
  std::vector<size_t> elements{0};
  for (size_t loop = 0; loop < extents.size(); ++loop) {
    std::vector<size_t> all;
    for (size_t base : elements) {
      for (int64_t i = 0; i < extents[loop]; ++i) {
        all.push_back(base + static_cast<size_t>(i * strides[loop]));
      }
    }
    elements = std::move(all);
  }
  return elements;
}

// Behind the last of the positions.
size_t end_of(const std::vector<size_t>& elements) {
  return elements.empty() ? 0 : 1 + *std::max_element(elements.begin(), elements.end());
}

// In `parts` calls, as threads share the units.
void check(const Case& c, DType dtype, int64_t parts) {
  SCOPED_TRACE(testing::Message() << c.title << ", " << dtype_name(dtype) << ", " << parts << " parts");
  KernelSpec spec = make_spec(c, dtype);
  ASSERT_TRUE(is_copy(spec));
  const size_t item = item_size(dtype);
  Dims extents = c.outer;
  extents.push_back(c.inner);
  const std::vector<size_t> reads = find_elements(extents, c.from);
  const std::vector<size_t> writes = find_elements(extents, c.to);
  std::vector<uint8_t> from(item * end_of(reads));
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<uint8_t>(i * 37 + i / 256);
  }
  std::vector<uint8_t> expected(item * end_of(writes) + 64, 0xEE); // what lies behind and between stays as it is
  std::vector<uint8_t> to = expected;
  for (size_t i = 0; i < reads.size(); ++i) {
    std::memcpy(&expected[item * writes[i]], &from[item * reads[i]], item);
  }
  std::vector<uint64_t> arguments = copy_arguments(spec);
  void* buffers[] = {from.data(), to.data()};
  for (int64_t part = 0; part < parts; ++part) {
    copy_kernel(spec)(buffers, arguments.data(), spec.units() * part / parts, spec.units() * (part + 1) / parts);
  }
  EXPECT_EQ(to, expected);
}

TEST(CopyKernelTest, CopiesEachElement) {
  const Case cases[] = {
      {"one row", {}, 300, {1}, {1}},
      {"every second", {}, 77, {2}, {1}},
      {"one element", {}, 1, {1}, {1}},
      {"rows of a slice", {5, 7}, 16, {400, 40, 1}, {112, 16, 1}},
      {"short rows", {40}, 3, {5, 1}, {3, 1}},
      {"a long row", {3}, 700, {900, 1}, {700, 1}},
      {"one for all", {4, 9}, 33, {1, 0, 0}, {297, 33, 1}},
      {"transposed", {130}, 37, {1, 130}, {37, 1}},
      {"transposed, of whole blocks", {128}, 64, {1, 128}, {64, 1}},
      {"transposed, smaller than a square", {3}, 3, {1, 3}, {3, 1}},
      {"channels inside, cropped", {2, 5, 6}, 10, {1000, 60, 1, 90}, {300, 60, 10, 1}},
      {"channels outside", {2, 10, 5}, 6, {300, 1, 60, 10}, {300, 30, 6, 1}},
      {"written with gaps", {6}, 5, {5, 1}, {40, 3}},
  };
  for (const Case& c : cases) {
    for (DType dtype : {DType::Bool, DType::BF16, DType::F32, DType::I64, DType::C128}) {
      for (int64_t parts : {1, 3}) {
        check(c, dtype, parts);
      }
    }
  }
}

// What is known when it runs: any order of dims on either side, and more than one thread's work.
TEST(CopyKernelTest, CopiesByStridesAlone) {
  struct {
    const char* title;
    Dims dims;
    Dims from;
    Dims to;
  } cases[] = {
      {"a number", {}, {}, {}},
      {"nothing", {3, 0}, {1, 3}, {1, 3}},
      {"dims of one element", {1, 5, 1}, {0, 1, 99}, {7, 1, 0}},
      {"one in both memories", {4, 5, 6}, {30, 6, 1}, {30, 6, 1}},
      {"permuted", {4, 5, 6}, {1, 4, 20}, {30, 1, 5}},
      {"one for all", {3, 50}, {0, 1}, {50, 1}},
      {"a slice of a larger memory", {2, 3, 70}, {2000, 100, 1}, {210, 70, 1}},
      {"a few long rows", {2, 131072}, {131072, 1}, {131080, 1}},
      {"many rows", {3000, 40}, {40, 1}, {41, 1}},
      {"a large transpose", {300, 500}, {1, 300}, {500, 1}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.title);
    const std::vector<size_t> reads = find_elements(c.dims, c.from);
    const std::vector<size_t> writes = find_elements(c.dims, c.to);
    std::vector<float> source(end_of(reads));
    std::iota(source.begin(), source.end(), 1.0F);
    std::vector<float> expected(end_of(writes) + 1); // the last one stays as it is
    std::vector<float> result = expected;
    for (size_t i = 0; i < reads.size(); ++i) {
      expected[writes[i]] = source[reads[i]];
    }
    copy_strided(DType::F32, c.dims, result.data(), c.to, source.data(), c.from);
    EXPECT_EQ(result, expected);
  }
}

TEST(CopyKernelTest, IsFoundByItsHash) {
  KernelSpec spec = make_spec({"", {}, 4, {1}, {1}}, DType::F32);
  EXPECT_EQ(find_copy_kernel(copy_kernel(spec).hash()).fn(), copy_kernel(spec).fn());
  EXPECT_EQ(find_copy_kernel(Hash128()).fn(), nullptr);
}

TEST(CopyKernelTest, ComputesNothing) {
  SpecBuilder b(KernelForm::kPointwise, {}, {}, 4);
  b.store(b.op(Prim::kAbs, {b.load(DType::F32, {1})}), DType::F32, {1});
  EXPECT_FALSE(is_copy(b.spec));
}

} // namespace
} // namespace torch_xla::cpu
