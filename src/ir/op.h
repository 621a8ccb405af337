// What is known of one operation: a row of the op tables. Passes ask traits and kinds, never names.
#pragma once

#include <cstdint>
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
  kLibrary, // ATen row: one call of ATen's CPU kernel (StableHLO form by `expand`, where it has one)
};

// How the result type of a pointwise row follows from its operands (at::result_type's categories), and the type its body computes in.
enum class TypeRule : uint8_t {
  kPromote, // result_type of all operands; computes in it
  kPromoteFloat, // as kPromote, integers become the default float type
  kCompare, // computes in result_type, gives Bool
  kSelf, // the first operand's type; computes in it
  kTail, // result_type of the operands after the first (where); the first stays as it is
  kBool, // operands as they are, gives Bool (logical_and, isnan)
};

enum OpTrait : uint32_t {
  kNoTraits = 0,
  kRandom = 1u << 0, // draws from a generator; operands end with seed and offset
  kNoBoolOperand = 1u << 1, // ATen refuses Bool operands (neg, sub)
  kKeepsOrder = 1u << 2, // a composite whose result lies in memory as TensorIterator's would: in the order of its operands
  kFormatOfAll = 1u << 3, // the result is channels-last when all operands are (cat)
  kUnitAlpha = 1u << 4, // the last operand is a factor that the recorder leaves out when it is 1
  kFloatOnly = 1u << 5, // ATen refuses results of integer types
  kNoFloat = 1u << 6, // ATen refuses results of floating types
  kNoBool = 1u << 7, // ATen refuses results of type Bool
  kDivides = 1u << 8, // ATen raises for an integer divided by zero
  kSameDtype = 1u << 9, // ATen refuses tensors of different dtypes
  kMask = 1u << 10, // ATen refuses a mask of another type than Bool: operand 0 by the rule kTail, else operand 1
  kNonNegative = 1u << 11, // ATen refuses a number that is negative or not finite (softshrink)
  kDenseOperands = 1u << 12, // a library call whose kernel reads its operands as row-major memory, whatever their strides say
  kDenseRows = 1u << 13, // a library call whose kernel takes the stride of its operands' last dim for 1
  kNumbersFit = 1u << 14, // ATen refuses a number that the result's type cannot hold (masked_fill, clamp)
  kLiftedByNumber = 1u << 15, // a floating number among the attributes makes the default float type of an integer operand 0 (pow)
  kChecksValues = 1u << 16, // a library call that raises for some values of its operands: an index out of range
  // Calls that break one of these go to the CPU fallback, where ATen raises its error.
  kRefuses = kNoBoolOperand | kFloatOnly | kNoFloat | kNoBool | kDivides | kSameDtype | kMask | kNonNegative | kNumbersFit,
};

struct Op {
  const char* name = nullptr; // "aten::add.Tensor"; primitives have StableHLO's name
  OpKind kind = OpKind::kPrim;
  TypeRule rule = TypeRule::kPromote;
  uint32_t traits = kNoTraits;
  int order_of = -1; // from this operand on: result i lies in memory in the order of operand order_of + i, where that has its sizes
  Prim prim = Prim::kNone;
  Ex (*body)(const BodyArgs& args) = nullptr; // kPointwise
  void (*infer)(InferContext& context) = nullptr; // kComposite, kLibrary: result types; throws UserError for bad arguments
  void (*expand)(ExpandContext& context) = nullptr; // kComposite; optional for kLibrary
};

} // namespace torch_xla
