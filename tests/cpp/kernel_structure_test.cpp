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

TEST(KernelStructureTest, NumbersAreFixedUntilALaterProgramHasOthers) {
  EXPECT_EQ(arguments_of(choose({softmax(4, 100, 2, 1)})[0]), "");
  EXPECT_EQ(arguments_of(choose({softmax(4, 100, 2, 1)})[0]), "");
  std::vector<ChosenKernel> more_rows = choose({softmax(5, 100, 2, 1)});
  EXPECT_EQ(arguments_of(more_rows[0]), "extent 0");
  EXPECT_EQ(more_rows[0].arguments, std::vector<uint64_t>{5});
  EXPECT_EQ(choose({softmax(700, 100, 2, 1)})[0].spec.text(), more_rows[0].spec.text());
  EXPECT_EQ(arguments_of(choose({softmax(5, 100, 3, 1)})[0]), "extent 0, constant 6");
  EXPECT_EQ(arguments_of(choose({softmax(4, 90, 2, 1)})[0]), "extent 0, stride 0, extent 1, constant 6");
  EXPECT_EQ(arguments_of(choose({softmax(4, 100, 2, 1)})[0]), "extent 0, stride 0, extent 1, constant 6");
}

TEST(KernelStructureTest, AFirstProgramHasKernelsForAFewSizes) {
  std::vector<ChosenKernel> few = choose({softmax(4, 100, 2, 2), softmax(8, 100, 2, 2), softmax(16, 100, 2, 2)});
  for (const ChosenKernel& kernel : few) {
    EXPECT_EQ(arguments_of(kernel), "");
  }
  EXPECT_EQ(arguments_of(choose({softmax(8, 100, 2, 2)})[0]), "");
  std::vector<KernelSpec> many;
  for (size_t i = 0; i <= kMaxVariants; ++i) {
    many.push_back(softmax(static_cast<int64_t>(i) + 2, 100, 2, 3));
  }
  for (const ChosenKernel& kernel : choose(many)) {
    EXPECT_EQ(arguments_of(kernel), "extent 0");
  }
}

TEST(KernelStructureTest, AProgramFromTheDiskIsRemembered) {
  KernelNumbers numbers = with_arguments(softmax(4, 100, 2, 4), false).numbers;
  std::vector<const KernelNumbers*> kernels{&numbers};
  remember_numbers(kernels);
  EXPECT_EQ(arguments_of(choose({softmax(9, 100, 2, 4)})[0]), "extent 0");
}

TEST(KernelStructureTest, WhatAnEarlierProcessHadCountsWhereItsCodeIs) {
  for (int id : {6, 7}) {
    KernelNumbers numbers = with_arguments(softmax(4, 100, 2, id), false).numbers;
    std::vector<const KernelNumbers*> kernels{&numbers};
    suggest_numbers(kernels);
    KernelSpec any_rows = softmax(kManyRows, 100, 2, id);
    any_rows.arguments.push_back({KernelArgument::Kind::kExtent, 0, kManyRows});
    Kernel code = id == 7 ? compile_kernel(any_rows) : Kernel();
    EXPECT_EQ(has_kernel(any_rows), id == 7);
    EXPECT_EQ(arguments_of(choose({softmax(9, 100, 2, id)})[0]), id == 7 ? "extent 0" : "");
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
