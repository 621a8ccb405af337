// The cost model of the embedded engine: costs of primitives, and thresholds for scheduling, code generation and library calls.
//
// Comments mark measured numbers; the machine was two cores of an AMD EPYC with AVX-512. The other numbers are orders of magnitude, between
// cases that are far apart in real programs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "core/dtype.h"
#include "ir/prim.h"

namespace torch_xla::cpu {

// ---- Primitives ----

// Cost for one element; a simple operation costs 1.
struct ClassCost {
  int kernel; // between kernels: loads and stores hide part of the arithmetic
  int sweep; // within a kernel, with the row in the cache: about the number of vector instructions
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
    case PrimClass::kFunction: // exp is about 20 instructions, tanh and erf are 30
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

// A load of elements that are apart in memory: one by one, often a cache line for each.
constexpr int kGatherCost = 8;
// Largest stride, in elements, at which vectors load all elements between and pick.
constexpr int kShortStride = 4;

// ---- Computing a value again in another kernel ----

// Largest cost of recomputing a value instead of storing and loading it. A conversion, a negation or a sum with a number of one loaded
// value costs no more than the load that it replaces.
constexpr int kCheap = 2;
constexpr int kCheapLoads = 1;
// A value with at most 1/kSmallShare of the kernel's elements (a bias, a mean, a learning rate) is recomputed outside the inner loop or for
// few elements: a step of its own would cost more, as each step is a barrier between threads.
constexpr int64_t kSmallShare = 4;
constexpr int kCheapForSmall = 24;
constexpr int kSmallLoads = 6;
// Largest total cost of recomputing a small value that differs between neighbours, for each element: channels of channels-last images.
// Above it a separate step is cheaper: inference of residual networks took 1 to 4 % less time (measured).
constexpr int64_t kManyRepeated = int64_t{1} << 17;
// Cap of a value's cost and loads, far above all limits: sums over trees with shared values double from node to node.
constexpr int kManyOperations = 1000;

// ---- Groups ----

// Most values of a group. The time to compile a kernel grows faster than its number of instructions (4 ms for a softmax, 200 ms for 500
// values, measured), and a longer chain saves few more loads and stores. With a limit, an unrolled loop has the same kernels for any number
// of turns: training a scan over 40 new lengths took 14.8 times eager's time with 1,200 values, 3.5 times with 64, and compiled runs were
// as fast. The models of the tests have one kernel above it.
constexpr size_t kMaxValues = 64;
// Most groups tried for a node besides its operands' groups. Bounds the time of grouping for values with very many readers.
constexpr size_t kMaxReaders = 16;
// Least cost of an element value, used before and after a reduction, that is kept in scratch memory instead of recomputed; the row must
// then fit there.
constexpr int kExpensive = 4;

// ---- Rows in a kernel ----

// Scratch memory of a row: a quarter of a usual L2, as the row's inputs and outputs need room too.
constexpr int64_t kRowScratchBytes = 256 << 10;
// Cost of storing a value there and reading it back, in simple operations: an exp is kept, a product is recomputed.
constexpr int kSpillCost = 10;
// Cap of a value's cost in a sweep: sums over a long chain stay finite.
constexpr int kMaxSweepCost = 1 << 20;
// Elements of a vector. Processors without AVX-512 use one or two registers for it (takes_two_registers() of emitter.cpp). Thresholds for
// rows count these vectors, as kRowBounds are the same everywhere.
constexpr int64_t kVectorElements = 16;
// Least vectors of a row for which a reduction uses four accumulators in turn: additions wait about four cycles for each other, but for a
// short row joining the sums costs more.
constexpr int64_t kVectorsForFour = 16;
constexpr int64_t kVectorsForTwo = 4;
// Most vectors of a short row: too few to hide the latency of its reductions, so two rows are computed together if there are enough rows
// for a second body. A vector of two registers hides most of it: a layer norm of 64 elements took 1.2 times as long without pairs, one of
// 128 elements 1.2 times as long with them (measured).
constexpr int64_t kShortRow = 16;
constexpr int64_t kShortRowOfTwo = 4;
constexpr int64_t kManyRows = 256;

// ---- Columns in a kernel ----

// Most values of a body that is repeated for vectors computed together: the code takes time to compile.
constexpr size_t kMaxColumnBody = 48;
// Most vectors of accumulators in a block: half of the 32 registers, as operands need room too.
constexpr size_t kMaxAccumulators = 16;

// ---- Sums ----

// Numbers added one after the other; longer sums are trees of such sums, for accuracy.
constexpr int64_t kFan = 128;
// Most iterations of a loop that uses the accumulators of the loop around it: new ones would cost more than the additions. Not below
// kShortRow: rows computed together have accumulators of one level.
constexpr int64_t kShortLoop = 64;
static_assert(kShortRow <= kShortLoop);

// ---- The inner loop ----

// With fewer vectors, or more values, all vectors are masked, not only the last one: slower by a tenth, but half the code to compile.
// Without AVX-512 masked stores are slow, so there the limit is one vector: 2x + y of rows of 119 elements took 3.1 ms with all stores
// masked and 0.8 ms with the last one (measured).
constexpr int64_t kFewVectors = 8;
constexpr size_t kLargeBody = 60;
// Most values of a body for which a processor without AVX-512 has two registers each (takes_two_registers() of emitter.cpp).
constexpr size_t kSmallBody = 12;

// ---- Kernels for any size ----

// If an extent is an argument of the code, the first of these bounds that it does not exceed decides in its place: one kernel serves all
// extents between two bounds, and one all above the last. For a row the bounds are the sizes at which more accumulators, whole vectors and
// trees of sums begin, and scratch memory ends.
inline constexpr std::array<int64_t, 5> kRowBounds = {63, 255, 1024, 2048, 32768};
inline constexpr std::array<int64_t, 3> kElementBounds = {7, 15, 127}; // pointwise inner loop: one vector, whole vectors
inline constexpr std::array<int64_t, 1> kColumnBounds = {63}; // columns of a reduction: whole blocks
inline constexpr std::array<int64_t, 3> kMidBounds = {64, 128, 128 * 128};
constexpr int64_t kAnyExtent = int64_t{1} << 24;
// Most values of a number in one program that get kernels of their own: ResNets have five sizes of images, and an unrolled loop has a new
// size in each turn.
constexpr size_t kMaxVariants = 6;
// Most kernel structures with remembered numbers, about a kilobyte each.
constexpr size_t kMaxStructures = 1 << 14;

// ---- Loops and threads ----

// Work that is worth a thread, in units of four simple operations on an element: about 16 us of arithmetic (tanh(2x+1)*sigmoid(x)-x*x over
// 4 million elements is 21 million units and took 1.3 ms on two threads), more if memory is the bound. Programs of short kernels do not
// gain from a second thread beside a busy recorder: they take 2.4 times as long as undisturbed with it, 1.9 times without (measured).
constexpr int kOperationsPerWork = 4;
constexpr int64_t kWorkPerThread = 131072;
// Cost of waiting for a preempted thread, and least gain for which a thread is put to sleep: about the time until the system gives it a
// processor again. Beside two busy processes, steps that lose less than this run on one thread: training an MLP then took 0.4 to 0.7 times
// as long, and 24 layers of 64 x 128 half as long; products of 3 ms and convolutions took 1.3 times as long on one thread. With a recorder,
// ResNet-18's few kernels between its convolutions made its step 1.1 times as long (measured).
constexpr int64_t kWaitNs = 250'000;
// Extra time of a recorder and a run's team of two that preempt each other: a program of two products, recorded in 40 us, took 75 to 120 us
// on one thread and 130 to 250 on two (measured).
constexpr int64_t kInTheWayNs = 80'000;
// Time that a step may lose by one thread less after the recorder has recorded for longer than last time.
constexpr int64_t kLeastTurnNs = 50'000;
// Numbers worth a thread in a library call that mainly moves them.
constexpr int64_t kMovedPerThread = int64_t{1} << 15;
// Outer iterations below which a long inner loop is cut instead: too few to be shared out evenly.
constexpr int64_t kFewUnits = 8;
constexpr int64_t kLongInner = 32768;
// Parts of such an inner loop: the first number that divides it, so that no remainder is left. More parts would be too short.
inline constexpr auto kInnerParts = {16, 8, 4, 2};
// Elements from which a transposing access is tiled: 64 KB of float32, about what the first-level cache keeps.
constexpr int64_t kLargeTranspose = 16384;
// The first size that divides the extent, so that no remainder is left. 16 elements of float32 are a cache line; the other sizes follow by
// the used share of their cache lines and by the rows of a tile that the first-level cache holds.
inline constexpr auto kTileRows = {16, 32, 8, 20, 12, 10};
inline constexpr auto kTileColumns = {16, 8, 32, 24, 48, 20, 12};

// ---- Large reductions with few results ----

// Elements per unit of work (a result, or a block of columns) from which a reduction with less than kManyResults units is cut in two
// levels: its units are too few for the threads, and each is a long chain of sums. The sums of 64 x 32 x 32 x 32 over all but the innermost
// 32 took one thread 0.8 ms, in two levels two threads 0.3 ms (measured).
constexpr int64_t kLargeReduction = 65536;
constexpr int64_t kManyResults = 8;
// The first level: enough rows for all threads, each long enough to be worth its store. Columns are stored in whole vectors.
constexpr int64_t kEnoughRows = 16;
constexpr int64_t kFewestRows = 4;
constexpr int64_t kShortestRow = 256;
constexpr int64_t kShortestColumn = 64;
// Most pieces that memory is cut into if no leading dims make such rows; the number used divides the memory.
constexpr int64_t kPieces = 64;

// ---- Library calls ----

// Least channels for which ATen's max pooling gets channels-last memory: it is vectorized over channels only, and 16 are a vector. 16 x 64
// x 32 x 32 took 0.2 ms against 4 ms (measured), which pays for two copies.
constexpr int64_t kPooledChannels = 16;
// Images are channels-last in training if a convolution's weight, which each call copies, has at most 1/kWeightShare of their elements.
// Time of a convolution and its gradients over row-major time (measured): 0.85 to 0.95 for small weights, 0.95 to 0.98 for half the images'
// elements, 1.0 to 1.16 from equal numbers on, 1.4 to 2 at 5 to 36 times the elements.
constexpr int64_t kWeightShare = 2;
// Least multiplications of a product for oneDNN: below, it saves less time than its code for each new shape costs (kShapesPerOctave). 71 x
// 256 x 256 takes as long as with MKL, 77 x 256 x 1024 saves 40 us.
constexpr int64_t kMinProducts = int64_t{12} << 20;
// Most multiplications of a product for a plain loop: it takes less than the 1 to 2 us that a call of ATen costs.
constexpr int64_t kMaxSmallProducts = 2048;
// Most rows of a product that takes little more time than reading the matrix. 8 x 384 x 1,536 takes one thread 190 us, MKL 330 to 390; 16
// rows 310 and 420, but of 384 x 384 as long as MKL (measured).
constexpr int64_t kMaxFewRows = 8;
// Least contiguous numbers of the matrix for that. 8 x 4,096 x 10 takes three times as long as with MKL, 8 x 10 x 512 transposed five times
// (measured).
constexpr int64_t kShortestPiece = 64;
// Most multiplications of a product for which one thread is at least as fast as two: 64 x 128 x 128 takes 37 us on one and on two, 64 x 64
// x 64 takes 9 and 12 us, and 22 and 45 us if the second thread has gone to sleep in between (measured).
constexpr int64_t kMaxShortProducts = int64_t{1} << 20;
// Numbers of a matrix worth a thread in a product with few rows. A row by 512 x 1,024 takes one thread 83 us and two 47, by 256 x 256 11
// and 10, by 128 x 128 4.5 and 5.4, with new memory in each call (measured).
constexpr int64_t kNumbersPerThread = int64_t{1} << 15;
// Multiplications worth a thread in a product cut into parts: 11 us. MKL keeps many products of less than ten million to one thread or
// takes longer with two: 64 x 32 x 1,024 takes one thread 51 us, MKL's two 105, two halves 25 each (measured).
constexpr int64_t kProductsPerThread = int64_t{1} << 19;
// Longest sum that MKL does not cut. It cuts longer ones by the number of torch.set_num_threads(), also within a parallel region: for one
// thread that number must be 1, or the last bits differ. Of 28,000 products with at least 16 rows and columns and sums of up to 768 none
// differed, of longer ones four of five, of narrower ones one of 17 (measured). With the full number short sums take the same time, but the
// next step finds its data in the caches: an MLP's training is 1.05 times as fast.
constexpr int64_t kLongestUncutSum = 512;
// Least length of a sum that oneDNN may cut for two threads. Of 500 products of 12 to 200 million multiplications none with shorter sums
// had other values on one thread; of those with longer ones most with at most 64 columns and `a` transposed had (measured).
constexpr int64_t kLeastCutSum = 2048;
// Longest row of a head for which attention's sums are not cut either: none of some thousand shapes differed (measured).
constexpr int64_t kLongestUncutHead = 128;
// Rows or columns of a part of a product: a multiple of a vector's numbers.
constexpr int64_t kPartUnit = 16;
// Most operations in a time step of an LSTM layer that runs on one thread: about as fast as on two. With 262,000 one thread took 0.86 times
// the time of two (a layer forwards and backwards, 32 steps), with 2.1 million 1.9 times.
constexpr int64_t kMaxShortFlops = 500'000;

// Most calls that run beside each other, one thread each: their results live at the same time. Not below the threads of a usual machine.
constexpr size_t kMaxCallsBeside = 16;
// Number of batches, or lengths, between two powers of two for which oneDNN makes code: each costs about a millisecond once, and 0.6 MB for
// ever (measured). Other sizes leave a remainder of less than a sixteenth.
constexpr int64_t kShapesPerOctave = 16;

// ---- Short programs ----

// Most bytes of a program, in all, for which its first run counts as short (executor.cpp): some 20 us for a few steps.
constexpr int64_t kSmallProgramBytes = 128 * 1024;
// The same for the work of its steps: numbers that are made and summed up need no memory.
constexpr int64_t kSmallProgramWork = 8;

// The same for the operations of an interpreted program, views included.
constexpr size_t kShortInterpretedNodes = 64;

// Most bytes, on average, that an operation of an interpreted trace computes: ATen writes them in some 20 us, while LLVM takes half a
// millisecond for an operation's code. If the code exists, planning takes about 5 us. Operands that library calls only read (weights of a
// decoder) do not count: a compiled program reads them too.
constexpr int64_t kInterpretedBytes = 128 * 1024;
constexpr int64_t kOftenInterpretedBytes = 48 * 1024;
// Most elements of operands and results for which such an operation takes one thread. Two threads are hardly faster, and if the recorder
// holds one of two processors they wait for each other at the end of each operation: training a graph network with about 100,000 elements
// an operation took 2.7 ms a step with 32 K here, 1.6 with 192 K (measured; eager 2.2).
constexpr int64_t kOneThreadElements = 192 * 1024;

// ---- Memory ----

// Least bytes of a temporary with its own block, so that outputs can take over its memory: a GPT's training step peaked at 250 MB instead
// of 297, in the same time (measured).
constexpr int64_t kOwnBlockBytes = int64_t{1} << 20;

// Least bytes of parameters for which a kernel's results are kept: finding them takes as long as reading some KB.
constexpr int64_t kLeastKeptBytes = 16 * 1024;
// Such results take at most 1/kKeptPart of the machine's memory.
constexpr int64_t kKeptPart = 8;

} // namespace torch_xla::cpu
