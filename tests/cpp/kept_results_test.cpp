// What programs keep of weights that do not change: when, for how long, and that no bit of a result depends on it.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "core/metrics.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/library/products.h"
#include "engine/cpu/memory/kept_results.h"
#include "engine_harness.h"

namespace torch_xla::testing {
namespace {

// Times that something kept was taken.
int64_t taken() {
  int64_t count = 0;
  metrics::find_counter("KeptResult", &count);
  return count;
}

// A program that casts its weight before a product.
class EngineKeptResults : public ::testing::Test {
 protected:
  static constexpr int64_t kSize = 128;

  EngineKeptResults() {
    Ex x = p_.input(x_);
    Ex product = p_.library("aten::mm", {x, p_.input(weight_).to(DType::BF16)}, {}, {{DType::BF16, {kSize, kSize}}});
    executable_ = p_.compile({product});
  }
  at::Tensor run(const EngineBufferRef& weight, bool donate = false) {
    RunArgs args;
    args.inputs = {upload(x_), weight};
    args.donated = {false, donate};
    executable_->run(args);
    return download(args.outputs[0]);
  }
  at::Tensor x_ = at::randn({kSize, kSize}).to(at::kBFloat16);
  at::Tensor weight_ = at::randn({kSize, kSize});
  Program p_;
  std::shared_ptr<Executable> executable_;
};

TEST_F(EngineKeptResults, FromTheSecondRunOverTheSameBuffer) {
  EngineBufferRef weight = upload(weight_);
  const int64_t before = taken();
  const at::Tensor first = run(weight);
  EXPECT_TRUE(at::allclose(first, x_.mm(weight_.to(at::kBFloat16)), 1e-2, 1e-1));
  // The third run takes what the second has cast and packs it, the fourth takes that too, where the processor has oneDNN's product.
  for (int64_t hits : {0, 1, cpu::can_multiply_by_onednn() ? 3 : 2}) {
    EXPECT_TRUE(run(weight).equal(first));
    EXPECT_EQ(taken() - before, hits);
  }
  const at::Tensor other = at::randn({kSize, kSize});
  EXPECT_TRUE(at::allclose(run(upload(other)), x_.mm(other.to(at::kBFloat16)), 1e-2, 1e-1));
  EXPECT_TRUE(run(weight, /*donate=*/true).equal(first));
}

// The memory of somebody else may be written at any time.
TEST_F(EngineKeptResults, NotOfAdoptedMemory) {
  at::Tensor data = weight_.clone();
  EngineBufferRef weight = cpu_engine().adopt(0, type_of(data), dims_of(data.strides()), data.data_ptr(), {});
  const int64_t before = taken();
  for (int i = 0; i < 3; ++i) {
    run(weight);
  }
  data.zero_();
  EXPECT_TRUE(run(weight).eq(0).all().item<bool>());
  EXPECT_EQ(taken(), before);
}

// A kernel that reads it beside what the run computes makes nothing that is kept.
TEST(EngineKept, IsReadByKernelsToo) {
  const at::Tensor x = at::randn({8, 48, 32}), a = at::randn({32, 48}), b = at::randn({48, 48});
  Program p;
  const Ex narrow = p.input(x).to(DType::BF16);
  const Ex moved{&narrow.b(), narrow.b().permute(narrow.id(), {0, 2, 1})};
  const Ex product = p.library("aten::mm", {p.input(a), p.input(b)}, {}, {{DType::F32, {32, 48}}});
  auto executable = p.compile({moved.to(DType::F32) * product});
  const at::Tensor expected = x.to(at::kBFloat16).permute({0, 2, 1}).to(at::kFloat) * a.mm(b);
  const std::vector<EngineBufferRef> inputs = {upload(x), upload(a), upload(b)};
  const int64_t before = taken();
  for (int i = 0; i < 3; ++i) {
    RunArgs args;
    args.inputs = inputs;
    args.donated.assign(inputs.size(), false);
    executable->run(args);
    EXPECT_TRUE(at::allclose(download(args.outputs[0]), expected, 1e-5, 1e-5));
  }
  EXPECT_GT(taken(), before);
}

// What is kept goes with the buffer that it was made of.
TEST_F(EngineKeptResults, UntilTheBufferGoes) {
  EngineBufferRef weight = upload(weight_);
  run(weight);
  const int64_t before = cpu_engine().memory_info(0).bytes_used;
  run(weight);
  EXPECT_GE(cpu_engine().memory_info(0).bytes_used - before, kSize * kSize * 2);
  weight.reset();
  EXPECT_LT(cpu_engine().memory_info(0).bytes_used, before);
}

// Runs over the same buffers give the same bits, the packed ones among them.
class EnginePacked : public ::testing::Test {
 protected:
  void check(const std::vector<at::Tensor>& inputs, const char* row, Attrs attrs, const at::Tensor& expected, bool packs) {
    Program p;
    std::vector<Ex> operands;
    RunArgs args;
    for (const at::Tensor& t : inputs) {
      operands.push_back(p.input(t));
      args.inputs.push_back(upload(t));
    }
    args.donated.resize(inputs.size());
    auto executable = p.compile({p.library(row, operands, std::move(attrs), {type_of(expected)})});
    const int64_t before = taken();
    std::vector<at::Tensor> results;
    for (int run = 0; run < 4; ++run) {
      RunArgs once = args;
      executable->run(once);
      results.push_back(download(once.outputs[0]));
      EXPECT_TRUE(results.back().equal(results[0])) << row << " run " << run;
    }
    EXPECT_TRUE(at::allclose(results[0], expected, 2e-2, 1e-1)) << row;
    // The second run packs, the third one and the fourth take it.
    EXPECT_EQ(taken() - before, packs ? 2 : 0) << row;
  }

  static inline const std::vector<int64_t> kOne{1, 1}, kZero{0, 0};
};

TEST_F(EnginePacked, Products) {
  const bool packs = cpu::can_multiply_by_onednn();
  const at::Tensor a = at::randn({24, 96}).to(at::kBFloat16);
  const at::Tensor b = at::randn({112, 96}).to(at::kBFloat16).t();
  const at::Tensor bias = at::randn({112}).to(at::kBFloat16);
  check({a, b}, "aten::mm", {}, at::mm(a, b), packs);
  check({a, b.contiguous()}, "aten::mm", {}, at::mm(a, b), packs);
  check({bias, a, b}, "aten::addmm", {1.0, 1.0}, at::addmm(bias, a, b), packs);
  check({bias, a.narrow(0, 0, 1), b}, "aten::addmm", {1.0, 1.0}, at::addmm(bias, a.narrow(0, 0, 1), b), false); // few rows read it as it is
}

// With all that a batch norm brings.
TEST_F(EnginePacked, Convolutions) {
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({2, 32, 12, 12}).to(dtype).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor bias = at::randn({64}).to(dtype);
    const at::Tensor mean = at::randn({64}), variance = at::rand({64}) + 1, scale = at::randn({64}), shift = at::randn({64});
    for (int64_t groups : {1, 2}) {
      const at::Tensor weight = (at::randn({64, 32 / groups, 3, 3}) / 16).to(dtype);
      const at::Tensor convolved =
          at::convolution(x.to(at::kFloat), weight.to(at::kFloat), bias.to(at::kFloat), kOne, kOne, kOne, false, kZero, groups);
      const at::Tensor normed = at::batch_norm(convolved, scale, shift, mean, variance, false, 0.1, 0.5, false);
      const at::Tensor added = at::randn({2, 64, 12, 12}).to(dtype);
      const Attrs attrs{kOne, kOne, kOne, false, kZero, groups, 0.5, std::string("relu"), std::string()};
      check(
          {x, weight, bias, mean, variance, scale, shift, added},
          "xla::fused_convolution",
          attrs,
          at::relu(normed + added).to(dtype),
          true);
    }
  }
}

// While one lives, the process finds no room for anything of `bytes` or more.
class NoMoreMemory {
 public:
  explicit NoMoreMemory(size_t bytes) {
    getrlimit(RLIMIT_AS, &before_);
    setrlimit(RLIMIT_AS, std::array{rlimit{bytes_mapped(), before_.rlim_max}}.data());
    while (void* freed = std::malloc(bytes / 2)) { // what malloc kept
      taken_.push_back(freed);
    }
  }
  ~NoMoreMemory() {
    std::for_each(taken_.begin(), taken_.end(), std::free);
    setrlimit(RLIMIT_AS, &before_);
  }
  NoMoreMemory(const NoMoreMemory&) = delete;
  NoMoreMemory& operator=(const NoMoreMemory&) = delete;

  static rlim_t bytes_mapped() {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  }

 private:
  rlimit before_{};
  std::vector<void*> taken_;
};

// A run that has written over its inputs already must not fail because a weight cannot be packed.
TEST(EnginePackedNot, WithoutRoom) {
  if (!cpu::can_multiply_by_onednn() || NoMoreMemory::bytes_mapped() > rlim_t{1} << 40) {
    GTEST_SKIP() << "oneDNN packs nothing on this processor, or a sanitizer has mapped all addresses";
  }
  constexpr int64_t kLarge = 4096; // 32 MB
  constexpr int64_t kRows = cpu::kMaxFewRows + 1;
  const at::Tensor a = at::ones({kRows, kLarge}, at::kBFloat16);
  const at::Tensor b = at::ones({kLarge, kLarge}, at::kBFloat16);
  Program p;
  auto executable = p.compile({p.library("aten::mm", {p.input(a), p.input(b)}, {}, {{DType::BF16, {kRows, kLarge}}})});
  RunArgs args;
  args.inputs = {upload(a), upload(b)};
  args.donated.resize(2);
  const int64_t before = taken();
  auto run = [&] {
    RunArgs once = args;
    executable->run(once);
    EXPECT_TRUE(download(once.outputs[0]).eq(kLarge).all().item<bool>());
  };
  run();
  {
    NoMoreMemory limit(kLarge * kLarge * 2);
    EXPECT_ANY_THROW(at::empty({kLarge, kLarge}, at::kBFloat16));
    run();
    run();
  }
  EXPECT_EQ(taken(), before);
  run(); // packs
  run();
  EXPECT_EQ(taken(), before + 1);
}

// Sums that are scaled, to which a matrix is added.
TEST(EnginePackedNot, OtherProducts) {
  const at::Tensor a = at::randn({24, 96}).to(at::kBFloat16);
  const at::Tensor b = at::randn({96, 112}).to(at::kBFloat16);
  const int64_t before = taken();
  for (int turn = 0; turn < 3; ++turn) {
    Program p;
    Ex sum = p.library("aten::addmm", {p.input(at::mm(a, b)), p.input(a), p.input(b)}, {1.0, 2.0}, {{DType::BF16, {24, 112}}});
    p.run({sum});
  }
  EXPECT_EQ(taken(), before);
}

TEST(KeptResults, AFew) {
  cpu::KeptResults kept;
  uint64_t count = 0;
  auto key = [](uint64_t number) {
    Hash128 hash;
    hash.add(number);
    return hash;
  };
  for (; kept.has_room(8); ++count) {
    kept.add(key(count), std::make_shared<uint64_t>(count), 8);
  }
  EXPECT_GE(count, 2);
  EXPECT_LE(count, 8);
  for (uint64_t i = 0; i < count; ++i) {
    ASSERT_TRUE(kept.find<uint64_t>(key(i)));
    EXPECT_EQ(*kept.find<uint64_t>(key(i)), i);
  }
  EXPECT_FALSE(kept.find<uint64_t>(key(count)));
}

TEST(KeptResults, NoMoreThanAPartOfTheMemory) {
  EXPECT_TRUE(cpu::KeptResults().has_room(1));
  EXPECT_FALSE(cpu::KeptResults().has_room(int64_t{1} << 50));
}

} // namespace
} // namespace torch_xla::testing
