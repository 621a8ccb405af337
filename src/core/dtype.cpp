// Names of element types and rounding of host numbers to them.
#include "core/dtype.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

namespace torch_xla {
namespace {

struct Named {
  DType dtype;
  const char* name;
};
constexpr Named kNames[] = {
    {DType::U8, "ui8"},
    {DType::I8, "i8"},
    {DType::I16, "i16"},
    {DType::I32, "i32"},
    {DType::I64, "i64"},
    {DType::F16, "f16"},
    {DType::F32, "f32"},
    {DType::F64, "f64"},
    {DType::C32, "c32"},
    {DType::C64, "c64"},
    {DType::C128, "c128"},
    {DType::Bool, "pred"},
    {DType::BF16, "bf16"},
    {DType::F8E5M2, "f8E5M2"},
    {DType::F8E4M3FN, "f8E4M3FN"},
    {DType::F8E5M2FNUZ, "f8E5M2FNUZ"},
    {DType::F8E4M3FNUZ, "f8E4M3FNUZ"},
    {DType::U16, "ui16"},
    {DType::U32, "ui32"},
    {DType::U64, "ui64"},
    {DType::F8E8M0FNU, "f8E8M0FNU"},
    {DType::F4E2M1X2, "f4E2M1x2"},
};

// Nearest float with `digits` significant bits and normal exponents from min_exponent up, ties to even; over `max` it is infinite.
double round_small_float(double v, int digits, int min_exponent, double max) {
  if (v == 0 || !std::isfinite(v)) {
    return v;
  }
  int quantum = std::max(std::ilogb(v), min_exponent) - (digits - 1);
  double r = std::ldexp(std::nearbyint(std::ldexp(v, -quantum)), quantum);
  return std::fabs(r) > max ? std::copysign(std::numeric_limits<double>::infinity(), v) : r;
}

} // namespace

const char* dtype_name(DType t) {
  for (const Named& n : kNames) {
    if (n.dtype == t) {
      return n.name;
    }
  }
  return "undefined";
}

DType find_dtype(const char* name, size_t length) {
  for (const Named& n : kNames) {
    if (std::string_view(name, length) == n.name) {
      return n.dtype;
    }
  }
  return DType::Undefined;
}

int significant_bits(DType t) {
  switch (t) {
    case DType::BF16:
      return 8;
    case DType::F16:
      return 11;
    case DType::F32:
      return 24;
    case DType::F64:
      return 53;
    case DType::Bool:
      return 1;
    default:
      return static_cast<int>(item_size(t)) * 8 - (t == DType::U8 ? 0 : 1);
  }
}

double round_to(DType t, double v) {
  // The 16-bit types round by way of float32, as ATen's conversions do.
  switch (t) {
    case DType::F32:
      return static_cast<float>(v);
    case DType::F16:
      return round_small_float(static_cast<float>(v), significant_bits(t), -14, largest_value(t));
    case DType::BF16:
      return round_small_float(static_cast<float>(v), significant_bits(t), -126, largest_value(t));
    default:
      return v;
  }
}

int64_t wrap_to(DType t, int64_t v) {
  switch (t) {
    case DType::U8:
      return static_cast<uint8_t>(v);
    case DType::I8:
      return static_cast<int8_t>(v);
    case DType::I16:
      return static_cast<int16_t>(v);
    case DType::I32:
      return static_cast<int32_t>(v);
    case DType::Bool:
      return v != 0;
    default:
      return v;
  }
}

double largest_value(DType t) {
  switch (t) {
    case DType::Bool:
      return 1;
    case DType::U8:
      return 0xff;
    case DType::I8:
      return 0x7f;
    case DType::I16:
      return 0x7fff;
    case DType::I32:
      return 0x7fffffff;
    case DType::I64:
      return 0x1p63;
    case DType::F16:
      return 65504.0;
    case DType::BF16:
      return 0x1.fep127;
    case DType::F32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

bool fits(double v, DType t) {
  if (is_float(t)) {
    return !std::isfinite(v) || std::abs(v) <= largest_value(t);
  }
  bool is_unsigned = t == DType::U8 || t == DType::Bool;
  const bool is_below_end = t == DType::I64 ? v < largest_value(t) : v <= largest_value(t);
  return v >= (is_unsigned ? 0 : -largest_value(t) - 1) && is_below_end;
}

bool fits(int64_t v, DType t) {
  auto number = static_cast<double>(v);
  bool is_signed = is_integral(t, false) && t != DType::U8;
  return number >= -largest_value(t) - is_signed && number <= largest_value(t);
}

} // namespace torch_xla
