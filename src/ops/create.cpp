// Rows that the recorder uses for factories and dtype conversion, and powers with a constant exponent.
#include "core/errors.h"
#include "ops/math.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// Also accepts types that the rows do not compute on: for bytes and zeros of them.
DType get_stored_dtype(const InferContext& c) {
  return static_cast<DType>(c.get_int(0));
}

// Operand value (none: zeros); attributes dtype, dims.
void infer_full(InferContext& c) {
  c.add_result(get_stored_dtype(c), c.get_dims(1));
}

void expand_full(ExpandContext& c) {
  Ex value = c.raw(0).to(c.result_type(0).dtype).reshape({});
  c.set(0, {&c.b(), c.b().broadcast(value.id(), c.result_type(0).dims)});
}

// Attributes dtype, dims. Not full() of the number 0, as numbers are not part of a program's structure: known zeros can be simplified.
void expand_zeros(ExpandContext& c) {
  c.set(0, {&c.b(), c.b().broadcast(c.b().constant(0, c.result_type(0).dtype), c.result_type(0).dims)});
}

// Operands start, step; attributes dtype, n.
void infer_arange(InferContext& c) {
  c.add_result(get_dtype(c, 0, DType::I64), {c.get_int(1)});
}

// In double or int64, as ATen's kernel computes each element.
void expand_arange(ExpandContext& c) {
  DType wide = is_float(c.result_type(0).dtype) ? DType::F64 : DType::I64;
  Ex index(&c.b(), c.b().iota(c.result_type(0).dims, 0, wide));
  c.set(0, c.raw(0).to(wide) + index * c.raw(1).to(wide));
}

// Attributes dtype, n, m.
void infer_eye(InferContext& c) {
  c.add_result(get_dtype(c, 0, DType::F32), {c.get_int(1), c.get_int(2)});
}

void expand_eye(ExpandContext& c) {
  Dims dims = c.result_type(0).dims;
  Ex row(&c.b(), c.b().iota(dims, 0, DType::I64));
  Ex column(&c.b(), c.b().iota(dims, 1, DType::I64));
  c.set(0, row == column);
}

// Attribute dtype.
void infer_convert(InferContext& c) {
  c.add_result(get_dtype(c, 0, DType::F32), c.operand(0).dims);
}

void expand_convert(ExpandContext& c) {
  c.set(0, c.raw(0));
}

// Attribute dtype: the same bytes, as Tensor.view(dtype) shows them.
void infer_reinterpret(InferContext& c) {
  DType dtype = get_stored_dtype(c);
  Dims dims = c.operand(0).dims;
  size_t from = item_size(c.operand(0).dtype);
  size_t to = item_size(dtype);
  if (from != to) {
    XLA_CHECK(!dims.empty(), "self.dim() cannot be 0 to view elements of another size");
    auto bytes = dims.back() * static_cast<int64_t>(from);
    XLA_CHECK(bytes % static_cast<int64_t>(to) == 0, "self.size(-1) must be a whole number of elements of the other dtype");
    dims.back() = bytes / static_cast<int64_t>(to);
  }
  c.add_result(dtype, dims);
}

// ---- pow.Tensor_Scalar: attribute exponent ----

bool is_float_attr(const Attr& a) {
  return std::holds_alternative<double>(a);
}

void infer_pow(InferContext& c) {
  Type x = c.operand(0);
  if (is_integral(x.dtype, true) && (is_float_attr(c.attr(0)) || c.get_double(0) < 0 || x.dtype == DType::Bool)) {
    fall_back("an integer to a negative power, or a power of a bool");
  }
  if (!is_float(x.dtype) || is_reduced_float(x.dtype)) { // wider floats take any power
    require_fit(c, 0);
  }
  c.add_result(x.dtype, x.dims);
}

Ex whole_power(Ex x, int64_t n) {
  Ex result = x.constant(1);
  for (bool first = true; n > 0; n >>= 1) {
    if (n & 1) {
      result = first ? x : result * x;
      first = false;
    }
    x = n > 1 ? x * x : x;
  }
  return result;
}

// The exponents with special kernels in ATen; others by pow().
Ex power(Ex x, double exponent) {
  if (exponent == 2) {
    return x * x;
  }
  if (exponent == 3) {
    return x * x * x;
  }
  if (exponent == 0.5) {
    return sqrt(x);
  }
  if (exponent == -0.5) {
    return 1.0 / sqrt(x);
  }
  if (exponent == -1) {
    return 1.0 / x;
  }
  if (exponent == -2) {
    return 1.0 / (x * x);
  }
  if (exponent == 1) {
    return x;
  }
  return exponent == 0 ? x.constant(1) : pow(x, x.constant(exponent));
}

void expand_pow(ExpandContext& c) {
  Ex x = c.raw(0).to(compute_type(c.result_type(0).dtype));
  c.set(0, is_float(x.dtype()) ? power(x, round_to(c.result_type(0).dtype, c.get_double(0))) : whole_power(x, c.get_int(0)));
}

// Rows that ATen does not know.
#define OWN(NAME, INFER, EXPAND, ...)               \
  {.name = "xla::" NAME,                            \
   .kind = OpKind::kComposite,                      \
   __VA_OPT__(.prim = __VA_ARGS__, ).infer = INFER, \
   .expand = EXPAND,                                \
   .traits = kOwnKernel}

constinit const Op kRows[] = {
    OWN("full", infer_full, expand_full),
    OWN("zeros", infer_full, expand_zeros, Prim::kConstant),
    OWN("arange", infer_arange, expand_arange),
    OWN("eye", infer_eye, expand_eye),
    OWN("convert", infer_convert, expand_convert),
    CALL("linspace", 0, .traits = kOwnKernel),
    CALL("logspace", 0, .traits = kOwnKernel),
    CALL("randperm.generator", 0, .traits = kOwnKernel | kRandom),
    LIBRARY("view_copy.dtype", infer_reinterpret, .reads = kDenseOperands),
    {.name = "aten::pow.Tensor_Scalar",
     .kind = OpKind::kComposite,
     .rule = TypeRule::kPromote,
     .infer = infer_pow,
     .expand = expand_pow,
     .layout = ResultLayout::kOfOperand,
     .traits = kComplex},
};

} // namespace

bool is_simple_power(double exponent) {
  return exponent == 0 || exponent == 1 || std::abs(exponent) == 2 || exponent == 3 || exponent == -1 || std::abs(exponent) == 0.5;
}

std::span<const Op> create_ops() {
  return kRows;
}

bool is_conversion(const Op& op) {
  return op.infer == &infer_convert;
}

} // namespace torch_xla
