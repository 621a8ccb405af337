// All facts about one operation: a row of the op tables. Passes ask traits and kinds, never names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ir/attr.h"
#include "ir/prim.h"
#include "ir/type.h"

namespace torch_xla {

class Builder;
class BodyArgs;
class Ex;
class InferContext;
class ExpandContext;

enum class OpKind : uint8_t {
  kPrim, // a primitive: pointwise, iota, constant, random bits or a reduction (keeps reduced dims as 1)
  kView, // aten::as_strided semantics on the operand's geometry; never copies by itself
  kViewUpdate, // operand 0 with the elements that a view addresses replaced by operand 1
  kPointwise, // ATen row: a scalar body over broadcast operands
  kComposite, // ATen row: an expansion into other nodes
  kLibrary, // ATen row: one call of ATen's CPU kernel (`expand`, if set, gives its StableHLO form)
};

// A pointwise row's result type, from its operands (at::result_type's categories), and the type in which its body computes.
enum class TypeRule : uint8_t {
  kNone, // by the row's own shape rule, or ATen's
  kPromote, // result_type of all operands; computes in it
  kPromoteFloat, // as kPromote, integers become the default float type
  kCompare, // computes in result_type, gives Bool
  kSelf, // the first operand's type; computes in it
  kTail, // result_type of the operands after the first, a mask, which ATen refuses of another type than Bool (where)
  kBool, // operands as they are, gives Bool (logical_and, isnan)
};
constexpr bool gives_bool(TypeRule rule) {
  return rule == TypeRule::kCompare || rule == TypeRule::kBool;
}

// Whether ATen brings all operands, numbers too, to one type.
constexpr bool promotes(TypeRule rule) {
  return rule == TypeRule::kPromote || rule == TypeRule::kPromoteFloat || gives_bool(rule);
}

// The order in which a result lies in memory. Channels-last stands for results of four and five dims only.
enum class ResultLayout : uint8_t {
  kRowMajor,
  kOfOperand, // result i: as operand `order_of` + i if the sizes are equal; else row-major
  kChannelsLast, // channels-last if an operand of the result's rank is (convolutions, pools)
  kOfOperands, // as TensorIterator orders it for all operands (pointwise rows)
  kFormatOfOperand, // channels-last if operand `order_of` + i is (norms)
  kPlainFormatOfOperand, // the same, but row-major if the operand is both, as with one channel (batch norm)
  kIndexed, // of operand 0, indexed by the others
  kChannelsLastOfAll, // channels-last if all operands are (cat), and no list of dims is empty (roll of the flat tensor)
  kColumnMajor, // each matrix column by column, as LAPACK writes it
  kAttention, // [batch, length, heads] or [batch, length, heads, size], seen with heads and length swapped
  kPad, // as kChannelsLast; if no pad adds elements, the order of a clone of the remaining part
  kConvolution, // as ATen's CPU kernel for the input (operand `order_of`) and the weight after it
  kSpectrum, // as ATen's CPU kernels of Fourier transforms write it
};

// How the kernel of a library call reads its operands.
enum OperandOrder : uint8_t {
  kByStrides,
  kDenseOperands, // as row-major memory, whatever their strides say
  kDenseRows, // with 1 as the stride of the last dim
  kFasterChannelsLast, // by their strides; channels-last images faster, as it is vectorized over channels only
};

// The elements that result i does not have from operand i. The others may stay in the operand's memory.
enum class Written : uint8_t {
  kAll,
  kNone, // result i is operand i, once all operands are computed: no pass moves or merges anything across the node
  // Result 0 is operand 0 but for what these read with the arguments after it: index_select, gather, index, take.
  kSelected,
  kGathered,
  kIndexed,
  kTaken,
};
constexpr bool is_part(Written written) {
  return written != Written::kAll && written != Written::kNone;
}

enum OpTrait : uint32_t {
  kNoTraits = 0,
  kRandom = 1u << 0, // draws from a generator; operands end with seed and offset
  kNoBoolOperand = 1u << 1, // ATen refuses Bool operands (neg, sub)
  kOwnKernel = 1u << 2, // no kernel is derived from the row: kernels/ has one of its own
  kHostArgument = 1u << 3, // argument 1 of the schema may hold CPU tensors: indices, probabilities
  kUnitAlpha = 1u << 4, // the last operand is a factor that the recorder leaves out when it is 1
  kFloatOnly = 1u << 5, // ATen refuses results of integer types
  kNoFloat = 1u << 6, // ATen refuses results of floating types
  kNoBool = 1u << 7, // ATen refuses results of type Bool
  kDivides = 1u << 8, // ATen raises for an integer divided by zero
  kSameDtype = 1u << 9, // ATen refuses tensors of different dtypes (of a call by ATen's shape rule: the first and the last)
  kFills = 1u << 10, // what it writes, its last operand, is one number to ATen (masked_fill, whose operand 1 is a mask of Bool, index_fill)
  kNumbersFit = 1u << 11, // ATen refuses a number that the result's type cannot hold (masked_fill, clamp)
  kChecksValues = 1u << 12, // a library call that raises for some values of its operands: an index out of range
  kReadsWhileWriting = 1u << 13, // ATen's kernel reads operands after it began to write: memory in common is refused
  kComplex = 1u << 14, // ATen's kernel computes on complex numbers too: calls with them are library calls, whatever the row is
  kCollective = 1u << 15, // the replicas of a run meet in it: it runs in the order of the trace, even if nobody wants its results
  kOtherLibrary = 1u << 16, // an operation of another library than ATen: its kernel is made at its first call
  kMovesElements = 1u << 17, // each number among its results is an element of an operand, or a number of the call; the others are indices
  kSumsProducts = 1u << 18, // sums of products of operands of one type, which engines that compute on 16-bit floats round once
  kHasProducts = 1u << 19, // a library call that multiplies matrices inside and may round each product
  kToldAtCall = 1u << 20, // with kChecksValues: programs catch its error and take another way, so the call waits and raises it (svd)
  // Traits that describe calls of ATen's kernel, for any kind of row.
  kOfCalls = kRandom | kChecksValues | kToldAtCall | kReadsWhileWriting | kHostArgument,
  // Calls that break one of these go to the CPU fallback, where ATen raises its error.
  kRefuses = kNoBoolOperand | kFloatOnly | kNoFloat | kNoBool | kDivides | kSameDtype | kFills | kNumbersFit,
};

// Sets of element types, for Op::dtypes.
enum DTypeSet : uint32_t {
  kIntegers = 1u << 0,
  kBools = 1u << 1,
  kHalves = 1u << 2, // float16 and bfloat16
  kFloats = 1u << 3, // float32 and float64
  kComplexes = 1u << 4, // complex64 and complex128
  kWhole = kIntegers | kBools,
  kAllFloats = kHalves | kFloats,
  kReals = kIntegers | kAllFloats,
  kAllTypes = kReals | kBools | kComplexes,
};
constexpr DTypeSet set_of(DType t) {
  return t == DType::Bool                ? kBools
      : is_integral(t, false)            ? kIntegers
      : is_reduced_float(t)              ? kHalves
      : is_float(t)                      ? kFloats
      : is_complex(t) && t != DType::C32 ? kComplexes
                                         : DTypeSet{};
}

// Rows are written by the macros of ops/row.h, which name the fields after `expand` in this order.
struct Op {
  const char* name = nullptr; // "aten::add.Tensor"; primitives have StableHLO's name
  OpKind kind = OpKind::kPrim;
  TypeRule rule = TypeRule::kNone;
  Prim prim = Prim::kNone; // of a row: the primitive that it is on operands of one type; kConstant: zero
  Ex (*body)(const BodyArgs& args) = nullptr; // kPointwise
  // kComposite, kLibrary: result types; throws UserError for bad arguments. Null (kLibrary): types and strides by ATen's shape rule, its
  // Meta kernel.
  void (*infer)(InferContext& context) = nullptr;
  void (*expand)(ExpandContext& context) = nullptr; // kComposite; optional for kLibrary
  // kLibrary: whether the expansion is faster than ATen's CPU kernel for a call. Null: for none.
  bool (*expands)(const InferContext& context) = nullptr;

  ResultLayout layout = ResultLayout::kRowMajor; // of eager's results
  int order_of = 0; // of ResultLayout::kOfOperand, kFormatOfOperand and kConvolution
  // kLibrary: the order in which ATen's CPU kernel returns its result, if that is not `layout`. A wrong value costs a copy.
  std::optional<ResultLayout> kernel_layout = std::nullopt;

  // Library rows without a form for plugins: the DTypeSet that ATen's CPU kernel takes as operand 0. Other dtypes go to ATen, which refuses
  // most.
  uint32_t dtypes = 0;

  OperandOrder reads = kByStrides; // kLibrary
  Written written = Written::kAll; // kLibrary
  uint32_t traits = kNoTraits; // of OpTrait
  // Whether ATen accepts a call's numbers (parameters of the program) and attributes; otherwise it raises. Null: all are accepted.
  bool (*takes)(std::span<const double> numbers, const Attrs& attrs) = nullptr;
  const char* if_none = nullptr; // kPointwise: the row for calls with None as attribute 0 (div without a rounding mode)
  const char* of_tensors = nullptr; // kPointwise: the row of the overload for tensors, if this one takes a number
  const char* epilogue = nullptr; // kPointwise: its name after a convolution, oneDNN's, with attribute 0 as the algorithm
  // kLibrary: the overload that writes into given memory, if it does so directly; most out forms call and then copy.
  const char* out_form = nullptr;
};

// A library row that only ATen's CPU kernel computes: it has no form for plugins.
constexpr bool is_call(const Op& op) {
  return op.kind == OpKind::kLibrary && (!op.infer || op.dtypes);
}

} // namespace torch_xla
