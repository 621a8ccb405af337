// The cost model of the embedded engine: what primitives cost, and the sizes at which scheduling and code generation decide otherwise.
//
// Where a number was measured its comment says so; the machine is two cores of an AMD EPYC with AVX-512. The other numbers are orders of
// magnitude: they tell cases apart that are far from each other in real programs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "ir/prim.h"

namespace torch_xla::cpu {

// ---- Primitives ----

// On one element, a simple operation being 1.
struct ClassCost {
  int kernel; // among kernels: beside loads and stores, which hide part of the arithmetic
  int sweep; // within a kernel, where a row is read from the cache: about the number of vector instructions
};

constexpr ClassCost class_cost(PrimClass prim_class) {
  switch (prim_class) {
    case PrimClass::kNone:
      return {0, 1};
    case PrimClass::kSimple:
    case PrimClass::kReduction:
      return {1, 1};
    case PrimClass::kDivision:
      return {4, 6};
    case PrimClass::kRemainder: // a call of Sleef, in a loop
      return {4, 40};
    case PrimClass::kFunction: // exp is about 15 instructions, tanh and erf are 30
      return {8, 20};
    case PrimClass::kFunctionOfTwo: // a call of Sleef
      return {8, 40};
    case PrimClass::kRandom: // ten rounds of two products each
      return {16, 40};
  }
  return {1, 1};
}

inline int kernel_cost(Prim prim) {
  return class_cost(prim_class(prim)).kernel;
}

// Processors have no vector division of integers.
inline int sweep_cost(Prim prim, DType dtype) {
  constexpr int kIntegerDivision = 40;
  int cost = class_cost(prim_class(prim)).sweep;
  return is_float(dtype) || cost == 1 ? cost : kIntegerDivision;
}

// A load whose neighbours are not neighbours in memory is a gather: a cache line for each element.
constexpr int kGatherCost = 8;

// ---- Computing a value again in another kernel ----

// Instead of a store there and a load here. A conversion, a negation, a sum with a number cost no more than the load that they replace, as
// long as they load one value themselves.
constexpr int kCheap = 2;
constexpr int kCheapLoads = 1;
// A value with at most 1/kSmallShare of the kernel's elements (a bias, a mean, a learning rate) is computed outside the inner loop or for
// few elements: a step of its own would cost more, as each step is a barrier between the threads.
constexpr int64_t kSmallShare = 4;
constexpr int kCheapForSmall = 24;
constexpr int kSmallLoads = 6;

// ---- Groups ----

// Values of a group at most: keeps kernels under about 3,000 instructions. The time to compile a kernel goes by its vector instructions (4
// ms for a softmax, measured), and a longer chain has few loads and stores left to save.
constexpr size_t kMaxValues = 1200;
// Groups that are tried as a home for a node beside its operands' own. Bounds the time of grouping where one value has very many readers.
constexpr size_t kMaxReaders = 16;
// From here on element values that are used before and after a reduction are kept in scratch memory instead of computed again, so that
// the row must fit there.
constexpr int kExpensive = 4;

// ---- Rows in a kernel ----

// Scratch memory of a row: a quarter of a usual L2, as the row's inputs and outputs want room too.
constexpr int64_t kRowScratchBytes = 256 << 10;
// Storing a value there and reading it back costs about as much as this many simple operations: an exp is kept, a product is computed
// again.
constexpr int kSpillCost = 10;

// ---- Loops and threads ----

// Work, in units of four simple operations on an element, that is worth a thread: about 16 us of arithmetic (tanh(2x+1)*sigmoid(x)-x*x over
// 4 million elements is 21 million units and took 1.3 ms on two threads), more where memory is the bound. Programs of short kernels do not
// gain from a second thread beside a busy recorder: they take 2.4 times as long as alone with it, 1.9 times without (measured).
constexpr int kOperationsPerWork = 4;
constexpr int64_t kWorkPerThread = 131072;
// Outer iterations that are too few to be shared out evenly, where the inner loop is long enough to be cut instead.
constexpr int64_t kFewUnits = 8;
constexpr int64_t kLongInner = 32768;
// Elements from which a transposing access is tiled: 64 KB of float32, about what the first-level cache holds on to by itself.
constexpr int64_t kLargeTranspose = 16384;

// ---- Reductions of much to little ----

// Elements per result from which a reduction with less than kManyResults results is cut in two levels: its rows would be too few for the
// threads, and one row a long chain of sums.
constexpr int64_t kLargeReduction = 65536;
constexpr int64_t kManyResults = 8;
// The first level: rows enough for threads to share, each long enough to be worth its store.
constexpr int64_t kEnoughRows = 16;
constexpr int64_t kFewestRows = 4;
constexpr int64_t kShortestRow = 256;
// Pieces that memory is cut into where no leading dims make such rows; halved until they divide it.
constexpr int64_t kPieces = 64;

} // namespace torch_xla::cpu
