// The cost model of the embedded engine: what primitives cost, and the sizes at which scheduling, code generation and library calls decide
// otherwise.
//
// Where a number was measured its comment says so; the machine is two cores of an AMD EPYC with AVX-512. The other numbers are orders of
// magnitude: they tell cases apart that are far from each other in real programs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

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

// A load whose neighbours are not neighbours in memory: element by element, often a cache line for each.
constexpr int kGatherCost = 8;
// Elements from one to the next up to which all between them are loaded in vectors.
constexpr int kShortStride = 4;

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
// Where it differs between neighbours, as what belongs to channels does in channels-last images, it is computed for each element: up to
// this cost in all. Beyond, a step of its own costs less: inference of residual networks took 1 to 4 % less time so (measured).
constexpr int64_t kManyRepeated = int64_t{1} << 17;
// The cost and the loads of a value at most: trees share values, so that sums over them double from node to node. Far above all limits.
constexpr int kManyOperations = 1000;

// ---- Groups ----

// Values of a group at most. The time to compile a kernel grows faster than its number of instructions (4 ms for a softmax, 200 ms for 500
// values, measured), a longer chain has few loads and stores left to save, and a loop that is unrolled has the same kernels whatever its
// number of turns: training a scan over 40 lengths, each new, took 14.8 times eager's time with 1,200 values, 3.5 times with 64, and no
// longer once it was compiled. The models of the tests have one kernel above it.
constexpr size_t kMaxValues = 64;
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
// What computing a value in a sweep comes to at most: sums over a long chain stay finite.
constexpr int kMaxSweepCost = 1 << 20;
// Elements of a vector. Processors without AVX-512 have one or two registers for it (takes_two_registers() of emitter.cpp); what decides on
// a row counts its vectors in these, as kRowBounds are the same everywhere.
constexpr int64_t kVectorElements = 16;
// Accumulators of a reduction, taken in turn, by the vectors of a row: additions wait about four cycles for each other, and a short row
// would pay more for joining the sums.
constexpr int64_t kVectorsForFour = 16;
constexpr int64_t kVectorsForTwo = 4;
// Vectors of a row that are too few to hide what each of its reductions waits for: two rows are computed together, where there are rows
// enough to be worth a second body. Where a vector is two registers it hides most of that by itself: a layer norm of 64 elements took 1.2
// times as long without pairs, one of 128 elements 1.2 times as long with them (measured).
constexpr int64_t kShortRow = 16;
constexpr int64_t kShortRowOfTwo = 4;
constexpr int64_t kManyRows = 256;

// ---- Columns in a kernel ----

// Values of a body, written out for vectors that are computed together, at most: the code takes time to compile.
constexpr size_t kMaxColumnBody = 48;
// Vectors of accumulators that a block may hold at once: half of the 32 registers, as operands want room too.
constexpr size_t kMaxAccumulators = 16;

// ---- Sums ----

// Numbers that are added one after the other; longer sums are trees of such ones, for accuracy.
constexpr int64_t kFan = 128;
// Iterations of a loop up to which it goes on with the accumulators of the loop around it: its own would cost more than it adds.
// Not below kShortRow: the rows that are computed together have accumulators of one level.
constexpr int64_t kShortLoop = 64;
static_assert(kShortRow <= kShortLoop);

// ---- The inner loop ----

// Below so many vectors, or above so many values, all vectors are masked, not only the last one: slower by a tenth, but half the code to
// compile. Without AVX-512, where masked stores are slow, the former only if there is one vector: 2x + y of rows of 119 elements
// took 3.1 ms with all stores masked and 0.8 ms with the last one (measured).
constexpr int64_t kFewVectors = 8;
constexpr size_t kLargeBody = 60;
// Up to so many values a processor without AVX-512 has registers for two vectors of each (takes_two_registers() of emitter.cpp).
constexpr size_t kSmallBody = 12;

// ---- Kernels for any size ----

// Where an extent is an argument of the code, what is decided by it is decided by the first of these that it does not exceed: one kernel
// serves all extents between two of them, and all above the last. Of a row they are the sizes at which it takes more accumulators, whole
// vectors, trees of sums, and no scratch memory.
inline constexpr std::array<int64_t, 5> kRowBounds = {63, 255, 1024, 2048, 32768};
inline constexpr std::array<int64_t, 3> kElementBounds = {7, 15, 127}; // of a pointwise inner loop: one vector, whole vectors
inline constexpr std::array<int64_t, 1> kColumnBounds = {63}; // of the columns of a reduction: whole blocks
inline constexpr std::array<int64_t, 3> kMidBounds = {64, 128, 128 * 128};
constexpr int64_t kAnyExtent = int64_t{1} << 24;
// Values of a number in one program for which kernels of their own are made: ResNets have five sizes of images, and a loop that is unrolled
// has a new size in each turn.
constexpr size_t kMaxVariants = 6;
// Structures of kernels whose numbers are remembered, about a kilobyte each.
constexpr size_t kMaxStructures = 1 << 14;

// ---- Loops and threads ----

// Work, in units of four simple operations on an element, that is worth a thread: about 16 us of arithmetic (tanh(2x+1)*sigmoid(x)-x*x over
// 4 million elements is 21 million units and took 1.3 ms on two threads), more where memory is the bound. Programs of short kernels do not
// gain from a second thread beside a busy recorder: they take 2.4 times as long as alone with it, 1.9 times without (measured).
constexpr int kOperationsPerWork = 4;
constexpr int64_t kWorkPerThread = 131072;
// What waiting for a thread that has been pushed aside costs, and what it must be worth to put one to sleep: about the time until the
// system gives it a processor again. Beside two busy processes training an MLP took 0.4 to 0.7 times as long with the steps on one thread
// that lose less than this so, and 24 layers of 64 x 128 half as long; products of 3 ms and convolutions took 1.3 times as long on one
// thread. For a recorder, ResNet-18's few kernels between its convolutions made its step 1.1 times as long (measured).
constexpr int64_t kWaitNs = 250'000;
// What a recorder and a run's team of two take beside their work where they push each other aside: a program of two products that is
// recorded in 40 us took 75 to 120 us by one thread, by two of them 130 to 250 (measured).
constexpr int64_t kInTheWayNs = 80'000;
// What a step may lose by a thread less where the recorder has gone on for longer than the last time.
constexpr int64_t kLeastTurnNs = 50'000;
// Numbers that a library call moves, and does little else with, that are worth a thread.
constexpr int64_t kMovedPerThread = int64_t{1} << 15;
// Outer iterations that are too few to be shared out evenly, where the inner loop is long enough to be cut instead.
constexpr int64_t kFewUnits = 8;
constexpr int64_t kLongInner = 32768;
// Parts that such an inner loop is cut into: the first number that divides it, as parts need no remainder. More would be too short.
inline constexpr auto kInnerParts = {16, 8, 4, 2};
// Elements from which a transposing access is tiled: 64 KB of float32, about what the first-level cache holds on to by itself.
constexpr int64_t kLargeTranspose = 16384;
// Tiles need no remainder, so the first size that divides the extent is taken. 16 elements of float32 are a cache line; the others follow
// by how much of their lines they use, and by how many rows of a tile the first-level cache holds.
inline constexpr auto kTileRows = {16, 32, 8, 20, 12, 10};
inline constexpr auto kTileColumns = {16, 8, 32, 24, 48, 20, 12};

// ---- Reductions of much to little ----

// Elements per unit of work (a result, or a block of columns) from which a reduction with less than kManyResults units is cut in two
// levels: it would have too few for the threads, and each would be a long chain of sums. The sums of 64 x 32 x 32 x 32 over all but the
// innermost 32 took one thread 0.8 ms, in two levels two threads 0.3 ms (measured).
constexpr int64_t kLargeReduction = 65536;
constexpr int64_t kManyResults = 8;
// The first level: rows enough for threads to share, each long enough to be worth its store. Columns are stored in whole vectors.
constexpr int64_t kEnoughRows = 16;
constexpr int64_t kFewestRows = 4;
constexpr int64_t kShortestRow = 256;
constexpr int64_t kShortestColumn = 64;
// Pieces that memory is cut into where no leading dims make such rows; as many of these as divide it.
constexpr int64_t kPieces = 64;

// ---- Library calls ----

// Channels from which ATen's max pooling is given channels-last memory: it is vectorized over channels only, and 16 are a vector. 0.2 ms
// against 4 ms for 16 x 64 x 32 x 32 (measured), which pays for two copies.
constexpr int64_t kPooledChannels = 16;
// Share of its images' elements that a convolution's weight may come to for channels-last images in training, as it is copied for each
// call. A convolution and its gradients by row-major time (measured): 0.85 to 0.95 where weights are small, 0.95 to 0.98 where they have
// half as many elements, 1.0 to 1.16 from the same number on, 1.4 to 2 at 5 to 36 times as many.
constexpr int64_t kWeightShare = 2;
// Multiplications of a product below which oneDNN saves less than the code costs that it makes for each new shape (kShapesPerOctave).
// 71 x 256 x 256 takes it as long as MKL, 77 x 256 x 1024 saves 40 us.
constexpr int64_t kMinProducts = int64_t{12} << 20;
// Multiplications of a product up to which a plain loop takes less time than ATen takes to begin: 1 to 2 us.
constexpr int64_t kMaxSmallProducts = 2048;
// Rows of a product up to which it takes little more than reading the matrix. 8 x 384 x 1,536 takes one thread 190 us, MKL 330 to 390; 16
// rows 310 and 420, but of 384 x 384 as long as MKL (measured).
constexpr int64_t kMaxFewRows = 8;
// Numbers of the matrix that must lie side by side for that. 8 x 4,096 x 10 takes three times as long as MKL, 8 x 10 x 512 transposed five
// times (measured).
constexpr int64_t kShortestPiece = 64;
// Multiplications of a product up to which one thread is as fast as two, or faster: 64 x 128 x 128 takes both 37 us, 64 x 64 x 64 takes 9
// and 12 us, and 22 and 45 us where the second thread has gone to sleep in between (measured).
constexpr int64_t kMaxShortProducts = int64_t{1} << 20;
// Numbers of a matrix that are worth a thread where few rows are multiplied by it. A row by 512 x 1,024 takes one thread 83 us and two 47,
// by 256 x 256 11 and 10, by 128 x 128 4.5 and 5.4, with other memory in each call (measured).
constexpr int64_t kNumbersPerThread = int64_t{1} << 15;
// Multiplications that are worth a thread of a product that is cut for them: 11 us. MKL keeps many products of less than ten million to one
// thread or takes longer with two: 64 x 32 x 1,024 takes one thread 51 us, MKL's two 105, two halves 25 each (measured).
constexpr int64_t kProductsPerThread = int64_t{1} << 19;
// MKL cuts longer sums for as many threads as torch.set_num_threads() has told it, in a parallel region, too: one thread must not be told
// of more, or its last bits are others. Of 28,000 products with 16 rows and columns or more and sums of up to 768 none differed, of longer
// ones four of five, of narrower ones one of 17 (measured). Where it does not cut them it computes as fast, but what it leaves in the
// caches makes the next step faster: an MLP's training 1.05 times.
constexpr int64_t kLongestUncutSum = 512;
// Sums from which on oneDNN cuts some for two threads. Of 500 products of 12 to 200 million multiplications none with shorter ones had
// other values on one thread, but most with at most 64 columns and a transposed (measured).
constexpr int64_t kLeastCutSum = 2048;
// Numbers of a head's rows up to which attention's sums are not cut either: none of some thousand shapes differed (measured).
constexpr int64_t kLongestUncutHead = 128;
// Rows or columns of such a part: a multiple of a vector's numbers.
constexpr int64_t kPartUnit = 16;
// A time step of an LSTM layer of so many operations takes one thread about as long as two: 262,000 took 0.86 times the time (a layer
// forwards and backwards, 32 steps), 2.1 million 1.9 times.
constexpr int64_t kMaxShortFlops = 500'000;

// Calls that run beside each other on one thread each: their results live at the same time. No fewer than a usual machine has threads.
constexpr size_t kMaxCallsBeside = 16;
// Batches, or lengths, between two powers of two for which oneDNN makes code: each costs about a millisecond once, and 0.6 MB for good
// (measured). What is left of others is less than a sixteenth.
constexpr int64_t kShapesPerOctave = 16;

// ---- Short programs ----

// Bytes that a program handles in all, up to which its first run is taken to be short (executor.cpp): some 20 us for a few steps.
constexpr int64_t kSmallProgramBytes = 128 * 1024;
// Likewise the work of its steps: numbers that are made and summed up need no memory.
constexpr int64_t kSmallProgramWork = 8;

// Likewise the operations of one that is interpreted, views among them.
constexpr size_t kShortInterpretedNodes = 64;

// Bytes that an operation computes, on average, up to which a trace may be run operation by operation at first: ATen writes so much in some
// 20 us, while the code of an operation takes LLVM half a millisecond. Where there is code planning takes about 5 us. What library calls
// only read, as the weights of a decoder, does not count: a compiled program reads as much.
constexpr int64_t kInterpretedBytes = 128 * 1024;
constexpr int64_t kOftenInterpretedBytes = 48 * 1024;
// Elements of operands and results up to which such an operation takes one thread. Two are hardly faster, and where the recorder keeps one
// of two processors they wait for each other at the end of each operation: training of a graph network with about 100,000 elements to an
// operation took 2.7 ms a step with 32 K here, 1.6 with 192 K (measured; eager 2.2).
constexpr int64_t kOneThreadElements = 192 * 1024;

// ---- Memory ----

// From here on a temporary has a block of its own, from which its memory goes on to outputs: a GPT's training step had 250 MB in use at
// most instead of 297, and took as long (measured).
constexpr int64_t kOwnBlockBytes = int64_t{1} << 20;

// Bytes of parameters from which on it pays to keep what a kernel makes of them: to look for it takes as long as to read some KB.
constexpr int64_t kLeastKeptBytes = 16 * 1024;
// Of the machine's memory, the part up to which such results are kept: one in so many.
constexpr int64_t kKeptPart = 8;

// Up to here a block of memory is copied as such: ATen's copy takes about a microsecond to begin.
constexpr size_t kSmallCopyBytes = 32 * 1024;

} // namespace torch_xla::cpu
