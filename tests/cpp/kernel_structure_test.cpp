// Which numbers of kernels become arguments of their code, and that one code serves many sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/cpu/cost.h"
#include "spec_builder.h"

namespace torch_xla::cpu {
namespace {

// A softmax over the last of two dims, times a number. `id` keeps the structures of the tests apart.
KernelSpec softmax(int64_t rows, int64_t columns, double factor, int id) {
  SpecBuilder k(KernelForm::kRow, {rows}, {}, columns);
  int x = k.load(DType::F32, k.dense());
  int centered = k.op(Prim::kSub, {x, k.op(Prim::kReduceMax, {x})});
  int e = k.op(Prim::kExp, {centered});
  int y = k.op(Prim::kDiv, {e, k.op(Prim::kReduceSum, {e})});
  y = k.op(Prim::kMul, {y, k.constant(DType::F32, factor)});
  for (int i = 0; i < id; ++i) {
    y = k.op(Prim::kNeg, {y});
  }
  k.store(y, DType::F32, k.dense());
  return k.spec;
}

std::vector<ChosenKernel> choose(const std::vector<KernelSpec>& specs) {
  std::vector<const KernelSpec*> pointers;
  for (const KernelSpec& spec : specs) {
    pointers.push_back(&spec);
  }
  return choose_arguments(pointers);
}

// As "extent 0, constant 7".
std::string arguments_of(const ChosenKernel& kernel) {
  std::string text;
  for (const KernelArgument& argument : kernel.spec.arguments) {
    const char* names[] = {"extent", "stride", "constant"};
    text += (text.empty() ? "" : ", ") + std::string(names[static_cast<size_t>(argument.kind)]) + " " + std::to_string(argument.at);
  }
  return text;
}

TEST(KernelStructureTest, OtherNumbersAreFixedUntilALaterProgramHasOthers) {
  EXPECT_EQ(arguments_of(choose({softmax(4, 100, 2, 1)})[0]), "extent 0");
  EXPECT_EQ(arguments_of(choose({softmax(4, 100, 2, 1)})[0]), "extent 0");
  EXPECT_EQ(arguments_of(choose({softmax(5, 100, 3, 1)})[0]), "extent 0, constant 6");
  EXPECT_EQ(arguments_of(choose({softmax(4, 90, 2, 1)})[0]), "extent 0, stride 0, extent 1, constant 6");
  EXPECT_EQ(arguments_of(choose({softmax(4, 100, 2, 1)})[0]), "extent 0, stride 0, extent 1, constant 6");
}

TEST(KernelStructureTest, OneCodeServesAnyNumberOfRows) {
  std::vector<ChosenKernel> few = choose({softmax(4, 100, 2, 8), softmax(255, 100, 2, 8)});
  EXPECT_EQ(few[0].spec.text(), few[1].spec.text());
  EXPECT_EQ(few[1].arguments, std::vector<uint64_t>{255});
  std::vector<ChosenKernel> many = choose({softmax(256, 100, 2, 8), softmax(70000, 100, 2, 8)});
  EXPECT_EQ(many[0].spec.text(), many[1].spec.text());
}

// Sums over the middle of three dims; the second stride of a batch follows from how many they are.
TEST(KernelStructureTest, OneCodeServesAnyNumberOfSummedRows) {
  auto sum = [](int64_t batch, int64_t rows) {
    SpecBuilder k(KernelForm::kColumn, {batch}, {rows}, 40);
    int x = k.op(Prim::kErf, {k.op(Prim::kErf, {k.load(DType::F32, {rows * 40, 40, 1})})}); // as in no other test
    k.store(k.op(Prim::kReduceSum, {x}), DType::F32, {40, 0, 1});
    return k.spec;
  };
  std::vector<ChosenKernel> sums = choose({sum(4, 7), sum(5, 9)});
  EXPECT_EQ(arguments_of(sums[0]), "extent 0, stride 0, stride 0, extent 1");
  EXPECT_EQ(sums[0].spec.text(), sums[1].spec.text());
}

TEST(KernelStructureTest, AFirstProgramHasKernelsForAFewSizes) {
  std::vector<ChosenKernel> few = choose({softmax(4, 100, 2, 2), softmax(4, 110, 2, 2), softmax(4, 120, 2, 2)});
  for (const ChosenKernel& kernel : few) {
    EXPECT_EQ(arguments_of(kernel), "extent 0");
  }
  EXPECT_EQ(arguments_of(choose({softmax(4, 110, 2, 2)})[0]), "extent 0");
  std::vector<KernelSpec> many;
  for (size_t i = 0; i <= kMaxVariants; ++i) {
    many.push_back(softmax(4, static_cast<int64_t>(i) + 100, 2, 3));
  }
  for (const ChosenKernel& kernel : choose(many)) {
    EXPECT_EQ(arguments_of(kernel), "extent 0, stride 0, extent 1");
  }
}

TEST(KernelStructureTest, AProgramFromTheDiskIsRemembered) {
  KernelNumbers numbers = with_arguments(softmax(4, 100, 2, 4), false).numbers;
  std::vector<const KernelNumbers*> kernels{&numbers};
  remember_numbers(kernels);
  EXPECT_EQ(arguments_of(choose({softmax(4, 90, 2, 4)})[0]), "extent 0, stride 0, extent 1");
}

TEST(KernelStructureTest, WhatAnEarlierProcessHadCountsWhereItsCodeIs) {
  auto norm = [](int64_t columns, int id) {
    SpecBuilder k(KernelForm::kRow, {4}, {}, columns);
    int x = k.load(DType::F32, k.dense());
    int y = k.op(Prim::kSub, {x, k.op(Prim::kReduceMax, {x})});
    for (int i = 0; i < id; ++i) {
      y = k.op(Prim::kNeg, {y});
    }
    k.store(y, DType::F32, k.dense());
    return k.spec;
  };
  for (int id : {6, 7}) {
    KernelNumbers numbers = with_arguments(norm(100, id), false).numbers;
    std::vector<const KernelNumbers*> kernels{&numbers};
    suggest_numbers(kernels);
    KernelSpec any = with_arguments(norm(90, id), true).spec;
    Kernel code = id == 7 ? compile_kernel(any) : Kernel();
    EXPECT_EQ(has_kernel(any), id == 7);
    EXPECT_EQ(arguments_of(choose({norm(90, id)})[0]), id == 7 ? "extent 0, stride 0, extent 1" : "extent 0");
  }
}

TEST(KernelStructureTest, DimsOfOneAreAnotherStructure) {
  EXPECT_FALSE(
      with_arguments(softmax(4, 100, 2, 5), true).numbers.structure == with_arguments(softmax(1, 100, 2, 5), true).numbers.structure);
  EXPECT_TRUE(with_arguments(softmax(4, 100, 2, 5), true).numbers.structure == with_arguments(softmax(3, 7, 9, 5), true).numbers.structure);
}

// An exponent decides which function is computed.
TEST(KernelStructureTest, ExponentsStayInTheCode) {
  SpecBuilder k(KernelForm::kPointwise, {}, {}, 100);
  k.store(k.op(Prim::kPow, {k.load(DType::F32, k.dense()), k.constant(DType::F32, 3)}), DType::F32, k.dense());
  EXPECT_EQ(arguments_of(with_arguments(k.spec, true)), "extent 0");
}

// Softmaxes of all lengths up to 300, and around each bound, by the codes of few bounds: equal to those made for them, to the last bit.
TEST(KernelStructureTest, OneCodeServesAllSizesUpToABound) {
  std::vector<int64_t> lengths(300);
  std::iota(lengths.begin(), lengths.end(), 2);
  for (int64_t bound : kRowBounds) {
    lengths.insert(lengths.end(), {bound - 1, bound, bound + 1, 9 * bound});
  }
  int64_t compiled = 0;
  for (int64_t length : lengths) {
    KernelSpec spec = softmax(3, length, 2, 6);
    std::vector<float> x(static_cast<size_t>(3 * length)), expected(x.size()), actual(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(i * 37 % 101) * 0.05F;
    }
    void* into_expected[] = {x.data(), expected.data()};
    void* into_actual[] = {x.data(), actual.data()};
    compile_kernel(spec)(into_expected, nullptr, 0, spec.units());
    ChosenKernel general = with_arguments(spec, true);
    int64_t before = kernel_stats().compiled;
    static std::vector<Kernel> kept;
    kept.push_back(compile_kernel(general.spec));
    compiled += kernel_stats().compiled - before;
    kept.back()(into_actual, general.arguments.data(), 0, spec.units());
    EXPECT_TRUE(actual == expected) << length;
  }
  EXPECT_EQ(compiled, static_cast<int64_t>(kRowBounds.size()) + 1);
}

} // namespace
} // namespace torch_xla::cpu
