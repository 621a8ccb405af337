// Elementwise operations and changes of shape.
#include "stablehlo/hlo.h"

#include <limits>

#include "core/errors.h"

namespace torch_xla::stablehlo {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Both with the dims that they broadcast to.
std::pair<Hlo, Hlo> meet(const Hlo& a, const Hlo& b) {
  Dims dims = broadcast_dims(a.dims(), b.dims());
  return {broadcast(a, dims), broadcast(b, dims)};
}

const char* compare_kind(DType t) {
  bool is_unsigned = t == DType::Bool || t == DType::U8 || t == DType::U32 || t == DType::U64;
  return is_float(t) ? "FLOAT" : is_unsigned ? "UNSIGNED" : "SIGNED";
}

Hlo plain_convert(const Hlo& x, DType dtype) {
  return x.text().op("convert", {x}, {}, {dtype, x.dims()});
}

// For numbers out of the integer type's range the processor gives its most negative number.
Hlo cut_off(const Hlo& x, DType dtype) {
  double limit = dtype == DType::I64 ? 0x1p63 : 0x1p31;
  Hlo wide = is_reduced_float(x.dtype()) ? plain_convert(x, DType::F32) : x;
  Hlo converted = plain_convert(wide, dtype);
  Hlo lowest = x.text().constant_int(dtype == DType::I64 ? INT64_MIN : INT32_MIN, converted.type());
  return select((wide >= -limit) & (wide < limit), converted, lowest);
}

} // namespace

Hlo unary(const char* name, Hlo x) {
  return x.text().op(name, {x}, {}, x.type());
}

Hlo binary(const char* name, Hlo a, Hlo b) {
  XLA_ASSERT(a.dtype() == b.dtype(), name, " of ", dtype_name(a.dtype()), " and ", dtype_name(b.dtype()));
  auto [x, y] = meet(a, b);
  return x.text().op(name, {x, y}, {}, x.type());
}

Hlo compare(const char* direction, Hlo a, Hlo b) {
  auto [x, y] = meet(a, b);
  Attributes attributes{
      {"comparison_direction", str("#stablehlo<comparison_direction ", direction, ">")},
      {"compare_type", str("#stablehlo<comparison_type ", compare_kind(a.dtype()), ">")}};
  return x.text().op("compare", {x, y}, attributes, {DType::Bool, x.dims()});
}

Hlo select(Hlo pred, Hlo on_true, Hlo on_false) {
  Dims dims = broadcast_dims(pred.dims(), broadcast_dims(on_true.dims(), on_false.dims()));
  return pred.text().op(
      "select", {broadcast(pred, dims), broadcast(on_true, dims), broadcast(on_false, dims)}, {}, {on_true.dtype(), dims});
}

Hlo constant_like(Hlo x, double v) {
  return x.text().constant(round_to(x.dtype(), v), x.type());
}

Hlo convert(Hlo x, DType dtype) {
  if (x.dtype() == dtype) {
    return x;
  }
  if (x.text().is_partitioned() && x.source() && x.source()->order.empty()) { // a mesh may cut each of the dims that the reshape joins
    return reshape(convert(x.source()->operand, dtype), x.dims());
  }
  if (dtype == DType::Bool) {
    return x != 0;
  }
  if (is_float(x.dtype()) && !is_float(dtype)) {
    return convert(cut_off(x, dtype == DType::I64 ? DType::I64 : DType::I32), dtype);
  }
  if (x.dtype() == DType::Bool && is_float(dtype)) { // XLA turns a product with a converted predicate into a select, and loses 0 * NaN
    Type type{dtype, x.dims()};
    return select(x, x.text().constant(1, type), x.text().constant(0, type));
  }
  // By way of float32, as ATen rounds.
  bool twice = is_reduced_float(dtype) && (x.dtype() == DType::F64 || x.dtype() == DType::I64 || x.dtype() == DType::I32);
  return plain_convert(twice ? plain_convert(x, DType::F32) : x, dtype);
}

Hlo is_nan(Hlo x) {
  return x != x;
}

Hlo clamp(Hlo x, double low, double high) {
  return minimum(maximum(x, constant_like(x, low)), constant_like(x, high));
}

Hlo erf(Hlo x) {
  Attributes attributes{{"call_target_name", "\"mhlo.erf\""}, {"mhlo.attributes", "{}"}, {"mhlo.version", "1 : i64"}};
  return x.text().op("custom_call", {x}, attributes, x.type());
}

Hlo gelu(Hlo x) {
  constexpr double kSqrtHalf = 0.707106781186547524401;
  return x * 0.5 * (erf(x * kSqrtHalf) + 1);
}

Hlo lowest(Text& text, DType t) {
  if (is_float(t)) {
    return text.constant(-kInfinity, {t, {}});
  }
  bool is_unsigned = t == DType::U8 || t == DType::Bool;
  return text.constant_int(is_unsigned ? 0 : INT64_MIN >> (64 - 8 * item_size(t)), {t, {}});
}

Hlo highest(Text& text, DType t) {
  if (is_float(t)) {
    return text.constant(kInfinity, {t, {}});
  }
  int64_t value = t == DType::Bool ? 1 : t == DType::U8 ? 255 : INT64_MAX >> (64 - 8 * item_size(t));
  return text.constant_int(value, {t, {}});
}

// ---- Shape ----

Hlo broadcast(Hlo x, const Dims& dims) {
  if (x.dims() == dims) {
    return x;
  }
  Dims mapping;
  for (size_t i = 0; i < x.rank(); ++i) {
    mapping.push_back(static_cast<int64_t>(dims.size() - x.rank() + i));
  }
  return broadcast_in_dim(x, dims, mapping);
}

Hlo broadcast_in_dim(Hlo x, const Dims& dims, const Dims& mapping) {
  return x.text().op("broadcast_in_dim", {x}, {{"broadcast_dimensions", array_text(mapping)}}, {x.dtype(), dims});
}

Hlo Hlo::made_of(Rearranged source) const {
  Hlo result = *this;
  result.source_ = std::make_shared<const Rearranged>(std::move(source));
  return result;
}

// A reshape of a reshape is one of the first operand.
Hlo reshape(Hlo x, const Dims& dims) {
  if (x.source() && x.source()->order.empty()) {
    x = Hlo(x.source()->operand);
  }
  return x.dims() == dims ? x : x.text().op("reshape", {x}, {}, {x.dtype(), dims}).made_of({x, {}});
}

std::optional<Hlo> with_split_rows(const Hlo& x) {
  if (!x.text().is_partitioned() || !x.source() || !x.source()->order.empty()) {
    return std::nullopt;
  }
  const Hlo& operand = x.source()->operand;
  Dims dims;
  int64_t rows = 1;
  while (dims.size() < operand.rank() && rows < x.dim(0)) {
    dims.push_back(operand.dim(dims.size()));
    rows *= dims.back();
  }
  if (dims.size() < 2 || rows != x.dim(0)) {
    return std::nullopt;
  }
  dims.push_back(x.dim(1));
  return reshape(operand, dims);
}

Dims all_but_last(const Hlo& x) {
  Dims dims;
  for (size_t d = 0; d + 1 < x.rank(); ++d) {
    dims.push_back(static_cast<int64_t>(d));
  }
  return dims;
}

Hlo transpose(Hlo x, const Dims& order) {
  Dims dims;
  bool keeps_order = true;
  int64_t last = -1;
  for (int64_t d : order) {
    dims.push_back(x.dim(static_cast<size_t>(d)));
    if (dims.back() != 1) {
      keeps_order = keeps_order && d > last;
      last = d;
    }
  }
  if (keeps_order) {
    return reshape(x, dims);
  }
  return x.text().op("transpose", {x}, {{"permutation", array_text(order)}}, {x.dtype(), dims}).made_of({x, order});
}

Hlo slice(Hlo x, const Dims& starts, const Dims& limits, const Dims& steps) {
  Dims dims;
  for (size_t i = 0; i < x.rank(); ++i) {
    dims.push_back((limits[i] - starts[i] + steps[i] - 1) / steps[i]);
  }
  Attributes attributes{{"start_indices", array_text(starts)}, {"limit_indices", array_text(limits)}, {"strides", array_text(steps)}};
  return dims == x.dims() ? x : x.text().op("slice", {x}, attributes, {x.dtype(), dims});
}

Hlo slice_dim(Hlo x, size_t dim, int64_t start, int64_t limit, int64_t step) {
  return slice(x, with(Dims(x.rank(), 0), dim, start), with(x.dims(), dim, limit), with(Dims(x.rank(), 1), dim, step));
}

Hlo pad(Hlo x, Hlo value, const Dims& low, const Dims& high, const Dims& interior) {
  Dims dims;
  for (size_t i = 0; i < x.rank(); ++i) {
    dims.push_back(low[i] + high[i] + x.dim(i) + std::max<int64_t>(x.dim(i) - 1, 0) * interior[i]);
  }
  Attributes attributes{
      {"edge_padding_low", array_text(low)}, {"edge_padding_high", array_text(high)}, {"interior_padding", array_text(interior)}};
  return dims == x.dims() && low == Dims(x.rank(), 0) ? x : x.text().op("pad", {x, value}, attributes, {x.dtype(), dims});
}

Hlo pad_dim(Hlo x, Hlo value, size_t dim, int64_t low, int64_t high) {
  Dims none(x.rank(), 0);
  return pad(x, value, with(none, dim, low), with(none, dim, high), none);
}

Hlo concatenate(const Hlos& parts, size_t dim) {
  Type result = parts[0].type();
  result.dims[dim] = 0;
  for (const Hlo& part : parts) {
    result.dims[dim] += part.dim(dim);
  }
  return parts.size() == 1 ? parts[0]
                           : parts[0].text().op("concatenate", parts, {{"dimension", int_text(static_cast<int64_t>(dim))}}, result);
}

Hlo reverse(Hlo x, const Dims& dims) {
  return dims.empty() ? x : x.text().op("reverse", {x}, {{"dimensions", array_text(dims)}}, x.type());
}

Hlo iota(Text& text, const Dims& dims, size_t dim, DType dtype) {
  return text.op("iota", {}, {{"iota_dimension", int_text(static_cast<int64_t>(dim))}}, {dtype, dims});
}

Hlo flatten(Hlo x) {
  return reshape(x, {x.type().numel()});
}

Hlo move_dim(Hlo x, size_t from, size_t to) {
  Dims order;
  for (size_t i = 0; i < x.rank(); ++i) {
    if (i != from) {
      order.push_back(static_cast<int64_t>(i));
    }
  }
  Dims moved(order.data(), to);
  moved.push_back(static_cast<int64_t>(from));
  for (size_t i = to; i < order.size(); ++i) {
    moved.push_back(order[i]);
  }
  return transpose(x, moved);
}

Dims without(const Dims& dims, size_t dim) {
  Dims result;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i != dim) {
      result.push_back(dims[i]);
    }
  }
  return result;
}

Dims with(Dims dims, size_t dim, int64_t extent) {
  dims[dim] = extent;
  return dims;
}

} // namespace torch_xla::stablehlo
