// Builder: appends primitive nodes to a graph, with type inference; Ex gives it arithmetic notation for the bodies in the op tables.
#pragma once

#include <span>
#include <utility>

#include "ir/graph.h"

namespace torch_xla {

class Ex;

class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}

  Graph& graph() {
    return graph_;
  }
  // A copy: an appended node moves the graph's own types.
  Type type(ValueId v) const {
    return graph_.type(v);
  }
  // Source line given to the nodes appended from now on.
  void set_location(int32_t location) {
    location_ = location;
  }

  ValueId constant(double v, DType dtype); // 0-d; integers must be exact in a double
  ValueId constant_int(int64_t v, DType dtype);
  ValueId unary(Prim prim, ValueId x);
  ValueId binary(Prim prim, ValueId a, ValueId b); // same dtype; dims broadcast; comparisons give Bool
  ValueId select(ValueId pred, ValueId on_true, ValueId on_false);
  ValueId convert(ValueId x, DType dtype); // x itself when it has that type
  ValueId broadcast(ValueId x, const Dims& dims); // x itself when it has these dims
  ValueId reduce(Prim prim, ValueId x, const Dims& dims); // dims are unique, in [0, rank); reduced extents become 1
  ValueId iota(const Dims& dims, int64_t dim, DType dtype); // index along dim
  ValueId random_bits(ValueId seed, ValueId offset, const Dims& dims, int64_t lane); // I32 words; seed, offset: I64 0-d
  ValueId reshape(ValueId x, const Dims& dims); // row-major order; x itself when it has these dims
  ValueId permute(ValueId x, const Dims& order);
  // General view: see ViewAttr. The view's strides and offset refer to memory with base_strides.
  ValueId view(ValueId x, const Dims& base_strides, const Dims& dims, const Dims& strides, int64_t offset);
  ValueId view_update(ValueId base, ValueId update, const Dims& base_strides, const Dims& strides, int64_t offset);
  // One library call; returns the first result.
  ValueId library(const Op& op, std::span<const ValueId> operands, Attrs attrs, std::span<const Type> results);

 private:
  ValueId append(const Op& op, InlineVec<ValueId, 4> operands, Attrs attrs, Type result);

  Graph& graph_;
  int32_t location_ = -1;
};

// A value with its builder: arithmetic by operators. Numbers mix in as constants of the other side's type.
class Ex {
 public:
  Ex(Builder* builder, ValueId id) : builder_(builder), id_(id) {}
  Builder& b() const {
    return *builder_;
  }
  ValueId id() const {
    return id_;
  }
  Type type() const {
    return builder_->type(id_);
  }
  DType dtype() const {
    return type().dtype;
  }
  Ex constant(double v) const {
    return {builder_, builder_->constant(v, dtype())};
  }
  Ex to(DType dtype) const {
    return {builder_, builder_->convert(id_, dtype)};
  }
  Ex unary(Prim prim) const {
    return {builder_, builder_->unary(prim, id_)};
  }
  Ex binary(Prim prim, Ex o) const {
    return {builder_, builder_->binary(prim, id_, o.id_)};
  }
  // Reduction that keeps the reduced dims as 1.
  Ex reduce(Prim prim, const Dims& dims) const {
    return {builder_, builder_->reduce(prim, id_, dims)};
  }
  Ex reshape(const Dims& dims) const {
    return {builder_, builder_->reshape(id_, dims)};
  }

 private:
  Builder* builder_;
  ValueId id_;
};

#define XLA_EX_OPERATOR(symbol, prim)           \
  inline Ex operator symbol(Ex a, Ex b) {       \
    return a.binary(Prim::prim, b);             \
  }                                             \
  inline Ex operator symbol(Ex a, double b) {   \
    return a.binary(Prim::prim, a.constant(b)); \
  }                                             \
  inline Ex operator symbol(double a, Ex b) {   \
    return b.constant(a).binary(Prim::prim, b); \
  }
XLA_EX_OPERATOR(+, kAdd)
XLA_EX_OPERATOR(-, kSub)
XLA_EX_OPERATOR(*, kMul)
XLA_EX_OPERATOR(/, kDiv)
XLA_EX_OPERATOR(<, kLt)
XLA_EX_OPERATOR(<=, kLe)
XLA_EX_OPERATOR(>, kGt)
XLA_EX_OPERATOR(>=, kGe)
XLA_EX_OPERATOR(==, kEq)
XLA_EX_OPERATOR(!=, kNe)
XLA_EX_OPERATOR(&, kAnd)
XLA_EX_OPERATOR(|, kOr)
XLA_EX_OPERATOR(^, kXor)
#undef XLA_EX_OPERATOR
inline Ex operator-(Ex a) {
  return a.unary(Prim::kNeg);
}
inline Ex operator!(Ex a) {
  return a.unary(Prim::kNot);
}
inline Ex select(Ex pred, Ex on_true, Ex on_false) {
  return {&pred.b(), pred.b().select(pred.id(), on_true.id(), on_false.id())};
}
inline Ex select(Ex pred, Ex on_true, double on_false) {
  return select(pred, on_true, on_true.constant(on_false));
}
inline Ex select(Ex pred, double on_true, Ex on_false) {
  return select(pred, on_false.constant(on_true), on_false);
}
inline Ex max(Ex a, Ex b) {
  return a.binary(Prim::kMax, b);
}
inline Ex min(Ex a, Ex b) {
  return a.binary(Prim::kMin, b);
}

// The arguments of a pointwise row's body. Operands are the tensor and number arguments of the ATen schema in their order; attributes are
// the others.
class BodyArgs {
 public:
  BodyArgs(Builder& builder, const Node& node, std::span<const ValueId> operands, DType common, const Type& result)
      : builder_(builder), node_(node), operands_(operands), common_(common), compute_(compute_type(common)), result_(result) {}

  // Operand i converted to the type that the row computes in (float32 for 16-bit floats).
  Ex operator[](size_t i) const {
    return {&builder_, builder_.convert(operands_[i], compute_)};
  }
  // The same after a conversion to the operands' common type: numbers are first rounded to a 16-bit float.
  Ex rounded(size_t i) const {
    return rounded(raw(i));
  }
  Ex rounded(Ex x) const {
    return x.to(common_).to(compute_);
  }
  // Operand i in its own type.
  Ex raw(size_t i) const {
    return {&builder_, operands_[i]};
  }
  bool has(size_t i) const {
    return i < operands_.size() && operands_[i] != kNoValue;
  }
  size_t size() const {
    return operands_.size();
  }
  Ex constant(double v) const {
    return {&builder_, builder_.constant(v, compute_)};
  }
  const Attr& attr(size_t i) const {
    return node_.attrs.at(i);
  }
  DType compute() const {
    return compute_;
  }
  const Type& result() const {
    return result_;
  }
  Builder& b() const {
    return builder_;
  }

 private:
  Builder& builder_;
  const Node& node_;
  std::span<const ValueId> operands_; // in the new graph
  DType common_;
  DType compute_;
  const Type& result_;
};

// The arguments of a shape rule of a composite or library row. kNoValue operands have no type.
class InferContext {
 public:
  InferContext(const Graph& graph, std::span<const ValueId> operands, const Attrs& attrs)
      : graph_(graph), operands_(operands), attrs_(attrs) {}

  size_t size() const {
    return operands_.size();
  }
  bool has(size_t i) const {
    return i < operands_.size() && operands_[i] != kNoValue;
  }
  Type operand(size_t i) const {
    return graph_.type(operands_[i]);
  }
  const Attr& attr(size_t i) const {
    return attrs_.at(i);
  }
  size_t num_attrs() const {
    return attrs_.size();
  }
  // Typed readers; None gives the default.
  int64_t get_int(size_t i, int64_t otherwise = 0) const;
  bool get_bool(size_t i, bool otherwise = false) const;
  double get_double(size_t i, double otherwise = 0) const; // also from int
  Dims get_dims(size_t i) const; // also from a single int; None gives empty
  bool is_none(size_t i) const {
    return std::holds_alternative<std::monostate>(attrs_.at(i));
  }
  void add_result(DType dtype, Dims dims) {
    results_.push_back({dtype, std::move(dims)});
  }
  // Adds a result that the call leaves undefined (output_mask): it gets no value.
  void add_undefined() {
    results_.push_back({DType::Undefined, {}});
  }
  std::vector<Type>& results() {
    return results_;
  }

 private:
  const Graph& graph_;
  std::span<const ValueId> operands_;
  const Attrs& attrs_;
  std::vector<Type> results_;
};

// The arguments of an expansion: the readers of InferContext over the new graph, and the results to set.
class ExpandContext : public InferContext {
 public:
  ExpandContext(Builder& builder, std::span<const ValueId> operands, const Attrs& attrs, std::span<const Type> results)
      : InferContext(builder.graph(), operands, attrs),
        builder_(builder),
        ids_(operands),
        types_(results),
        out_(results.size(), kNoValue) {}

  Builder& b() {
    return builder_;
  }
  Ex raw(size_t i) {
    return {&builder_, ids_[i]};
  }
  // Operand i in the type ATen computes in: float32 for the 16-bit floats.
  Ex computed(size_t i) {
    return raw(i).to(compute_type(raw(i).dtype()));
  }
  size_t num_results() const {
    return types_.size();
  }
  const Type& result_type(size_t i) const {
    return types_[i];
  }
  // Sets result i; converted and broadcast or reshaped (same number of elements) to its type.
  void set(size_t i, Ex value);
  std::span<const ValueId> out() const {
    return out_;
  }

 private:
  Builder& builder_;
  std::span<const ValueId> ids_;
  std::span<const Type> types_;
  std::vector<ValueId> out_;
};

} // namespace torch_xla
