// Decides which numbers of a kernel are fixed in its code, and which are arguments.
//
// An extent that does not help the code is always an argument: of the outermost loop and of mid loops, with the strides that follow from
// it. So one code serves batches of any size. Every other number (an inner extent, a stride, a constant) is fixed until it changes: the
// first program with kernels of a structure, and every program of the same sizes, gets code for its sizes. If a later program has another
// size or constant in that place, or one program has more than kMaxVariants of them, the number becomes an argument, for that program and
// all later ones. So steps of one shape run code made for it, and new inner sizes cost LLVM's work once or twice in the life of a
// structure. If an earlier process has left code for any size, this process's first program with other sizes takes it at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/hash.h"
#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {

// The numbers of a kernel that may become arguments, in the order of its text, and its structure without them.
struct KernelNumbers {
  Hash128 structure;
  std::vector<int64_t> values; // bits for constants
};

// A kernel's spec for the code generator, with the values of its arguments.
struct ChosenKernel {
  KernelSpec spec;
  std::vector<uint64_t> arguments; // parallel to spec.arguments
  KernelNumbers numbers;
};

// Chooses for the kernels of one program, in their order. Thread-safe.
std::vector<ChosenKernel> choose_arguments(std::span<const KernelSpec* const> specs);
// Notes the kernels of a program from disk as choose_arguments() would. Thread-safe.
void remember_numbers(std::span<const KernelNumbers* const> kernels);
// Notes the numbers of an earlier process's program, for structures that are new to this process. Thread-safe.
void suggest_numbers(std::span<const KernelNumbers* const> kernels);
// The kernel with all of its numbers as arguments, or none.
ChosenKernel with_arguments(const KernelSpec& spec, bool all);

} // namespace torch_xla::cpu
