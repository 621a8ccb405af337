// Which numbers of a kernel are fixed in its code, and which are arguments of it.
//
// An extent that code gains nothing by is an argument always: that of the outermost loop, and of mid loops, with the strides that follow
// from it. So batches of any size are one code from the first on. Every other number (an inner extent, a stride, a constant) is fixed
// until it is met with other values: the first program that has kernels of a structure gets them made for its sizes, and so does every
// program of the same sizes. Where a later program has a size or a constant that the first did not have in that place, or one program has
// more than kMaxVariants of them, it becomes an argument of the code, for that program and all to come. So steps of one shape run what
// was made for them, and new inner sizes cost LLVM's work once or twice in the life of a structure. Where an earlier process has left code
// for any size, the first program of this one that has other sizes takes it at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/hash.h"
#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {

// The numbers of a kernel that may become arguments, in the order in which its text has them, and what is left of it without them.
struct KernelNumbers {
  Hash128 structure;
  std::vector<int64_t> values; // of constants the bits
};

// A kernel as code is made of it.
struct ChosenKernel {
  KernelSpec spec;
  std::vector<uint64_t> arguments; // parallel to spec.arguments
  KernelNumbers numbers;
};

// For the kernels of one program, in their order. Thread-safe.
std::vector<ChosenKernel> choose_arguments(std::span<const KernelSpec* const> specs);
// As if choose_arguments() had been called for the kernels of a program that comes from the disk. Thread-safe.
void remember_numbers(std::span<const KernelNumbers* const> kernels);
// What an earlier process had in the kernels of a program, of structures that this one has not met. Thread-safe.
void suggest_numbers(std::span<const KernelNumbers* const> kernels);
// The kernel with all of its numbers as arguments, or none.
ChosenKernel with_arguments(const KernelSpec& spec, bool all);

} // namespace torch_xla::cpu
