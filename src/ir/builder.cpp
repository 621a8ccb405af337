// Type inference of primitive nodes, and the readers that the rows' rules use.
#include "ir/builder.h"

#include "core/errors.h"

namespace torch_xla {

// ---- Builder ----

ValueId Builder::append(const Op& op, InlineVec<ValueId, 4> operands, Attrs attrs, Type result) {
  return graph_.add_node(op, std::move(operands), std::move(attrs), std::span<const Type>(&result, 1), location_);
}

ValueId Builder::constant(double v, DType dtype) {
  if (dtype == DType::Bool) {
    return constant_int(v != 0, dtype);
  }
  if (!is_float(dtype)) {
    return constant_int(static_cast<int64_t>(v), dtype);
  }
  return append(prim_op(Prim::kConstant), {}, {round_to(dtype, v)}, {dtype, {}});
}

ValueId Builder::constant_int(int64_t v, DType dtype) {
  if (is_float(dtype)) {
    return constant(static_cast<double>(v), dtype);
  }
  return append(prim_op(Prim::kConstant), {}, {wrap_to(dtype, v)}, {dtype, {}});
}

ValueId Builder::unary(Prim prim, ValueId x) {
  Type result = type(x);
  if (gives_bool(prim)) {
    result.dtype = DType::Bool;
  }
  return append(prim_op(prim), {x}, {}, std::move(result));
}

ValueId Builder::binary(Prim prim, ValueId a, ValueId b) {
  DType dtype = graph_.type(a).dtype;
  XLA_ASSERT(dtype == graph_.type(b).dtype, prim_name(prim), " of ", dtype_name(dtype), " and ", dtype_name(graph_.type(b).dtype));
  Dims dims = broadcast_dims(graph_.type(a).dims, graph_.type(b).dims);
  return append(prim_op(prim), {a, b}, {}, {gives_bool(prim) ? DType::Bool : dtype, std::move(dims)});
}

ValueId Builder::select(ValueId pred, ValueId on_true, ValueId on_false) {
  DType dtype = graph_.type(on_true).dtype;
  XLA_ASSERT(graph_.type(pred).dtype == DType::Bool && dtype == graph_.type(on_false).dtype, "operands of select");
  Dims dims = broadcast_dims(graph_.type(pred).dims, broadcast_dims(graph_.type(on_true).dims, graph_.type(on_false).dims));
  return append(prim_op(Prim::kSelect), {pred, on_true, on_false}, {}, {dtype, std::move(dims)});
}

ValueId Builder::convert(ValueId x, DType dtype) {
  if (graph_.type(x).dtype == dtype) {
    return x;
  }
  return append(prim_op(Prim::kConvert), {x}, {}, {dtype, graph_.type(x).dims});
}

ValueId Builder::broadcast(ValueId x, const Dims& dims) {
  const Type& from = graph_.type(x);
  if (from.dims == dims) {
    return x;
  }
  XLA_ASSERT(broadcast_dims(from.dims, dims) == dims, "broadcast to fewer elements");
  return append(prim_op(Prim::kConvert), {x}, {}, {from.dtype, dims});
}

ValueId Builder::reduce(Prim prim, ValueId x, const Dims& dims) {
  if (dims.empty()) {
    return x;
  }
  Type result = type(x);
  for (int64_t d : dims) {
    XLA_ASSERT(d >= 0 && d < static_cast<int64_t>(result.dims.size()), prim_name(prim), " over dim ", d);
    result.dims[d] = 1;
  }
  return append(prim_op(prim), {x}, {dims}, std::move(result));
}

ValueId Builder::iota(const Dims& dims, int64_t dim, DType dtype) {
  XLA_ASSERT(dim >= 0 && dim < static_cast<int64_t>(dims.size()), "iota along dim ", dim);
  return append(prim_op(Prim::kIota), {}, {dim}, {dtype, dims});
}

ValueId Builder::random_bits(ValueId seed, ValueId offset, const Dims& dims, int64_t lane) {
  return append(prim_op(Prim::kRandomBits), {seed, offset}, {lane}, {DType::I32, dims});
}

ValueId Builder::reshape(ValueId x, const Dims& dims) {
  Type from = type(x);
  if (from.dims == dims) {
    return x;
  }
  XLA_ASSERT(from.numel() == num_elements(dims), "reshape changes the number of elements");
  return view(x, contiguous_strides(from.dims), dims, contiguous_strides(dims), 0);
}

ValueId Builder::permute(ValueId x, const Dims& order) {
  Dims from = graph_.type(x).dims;
  Dims base = contiguous_strides(from);
  XLA_ASSERT(order.size() == from.size(), "permute of ", from.size(), " dims by ", order.size());
  Dims dims;
  Dims strides;
  for (int64_t d : order) {
    dims.push_back(from[d]);
    strides.push_back(base[d]);
  }
  return view(x, base, dims, strides, 0);
}

ValueId Builder::view(ValueId x, const Dims& base_strides, const Dims& dims, const Dims& strides, int64_t offset) {
  return append(kViewOp, {x}, {base_strides, strides, offset}, {graph_.type(x).dtype, dims});
}

ValueId Builder::view_update(ValueId base, ValueId update, const Dims& base_strides, const Dims& strides, int64_t offset) {
  return append(kViewUpdateOp, {base, update}, {base_strides, strides, offset}, type(base));
}

ValueId Builder::library(const Op& op, std::span<const ValueId> operands, Attrs attrs, std::span<const Type> results) {
  return graph_.add_node(op, {operands.data(), operands.size()}, std::move(attrs), results, location_);
}

// ---- InferContext, ExpandContext ----

int64_t InferContext::get_int(size_t i, int64_t otherwise) const {
  const Attr& a = attr(i);
  if (is_none(i)) {
    return otherwise;
  }
  if (auto* flag = std::get_if<bool>(&a)) {
    return *flag;
  }
  return std::get<int64_t>(a);
}

bool InferContext::get_bool(size_t i, bool otherwise) const {
  return get_int(i, otherwise) != 0;
}

double InferContext::get_double(size_t i, double otherwise) const {
  if (auto* value = std::get_if<double>(&attr(i))) {
    return *value;
  }
  return is_none(i) ? otherwise : static_cast<double>(get_int(i));
}

Dims InferContext::get_dims(size_t i) const {
  const Attr& a = attr(i);
  if (is_none(i)) {
    return {};
  }
  if (auto* single = std::get_if<int64_t>(&a)) {
    return {*single};
  }
  return std::get<Dims>(a);
}

void ExpandContext::set(size_t i, Ex value) {
  const Type& want = types_[i];
  if (want.dtype == DType::Undefined) {
    return;
  }
  ValueId v = value.to(want.dtype).id();
  bool same_size = builder_.type(v).numel() == want.numel();
  out_[i] = same_size ? builder_.reshape(v, want.dims) : builder_.broadcast(v, want.dims);
}

} // namespace torch_xla
