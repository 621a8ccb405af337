// Element types of values; the numeric codes are c10::ScalarType's, so a conversion is a cast.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_xla {

enum class DType : int8_t {
  U8 = 0,
  I8 = 1,
  I16 = 2,
  I32 = 3,
  I64 = 4,
  F16 = 5,
  F32 = 6,
  F64 = 7,
  C32 = 8,
  C64 = 9,
  C128 = 10,
  Bool = 11,
  BF16 = 15,
  F8E5M2 = 23, // from here on: stored only, computed on by the CPU fallback
  F8E4M3FN = 24,
  F8E5M2FNUZ = 25,
  F8E4M3FNUZ = 26,
  U16 = 27,
  U32 = 28,
  U64 = 29,
  F8E8M0FNU = 44,
  F4E2M1X2 = 45, // two numbers in a byte
  Undefined = -1,
};

// True for the ten types that native rows compute on; all others go to the CPU fallback.
constexpr bool is_native(DType t) {
  return (t >= DType::U8 && t <= DType::F64) || t == DType::Bool || t == DType::BF16;
}
constexpr bool is_reduced_float(DType t) {
  return t == DType::F16 || t == DType::BF16;
}
constexpr bool is_float(DType t) {
  return t == DType::F32 || t == DType::F64 || is_reduced_float(t);
}
constexpr bool is_complex(DType t) {
  return t == DType::C32 || t == DType::C64 || t == DType::C128;
}
constexpr bool is_integral(DType t, bool include_bool) {
  return (t >= DType::U8 && t <= DType::I64) || (include_bool && t == DType::Bool);
}
// Type in which ATen's CPU kernels compute: float32 for the 16-bit floats, else the type itself.
constexpr DType compute_type(DType t) {
  return is_reduced_float(t) ? DType::F32 : t;
}

// How the device stores float32 and float64. Tensors report float32 and float64 in any case.
enum class FloatStorage : uint8_t {
  kFull, // as they are
  kBf16, // both as bfloat16: XLA_USE_BF16
  kHalf, // float32 as bfloat16, float64 as float32: XLA_DOWNCAST_BF16
};
constexpr DType stored_type(DType t, FloatStorage storage) {
  if (storage == FloatStorage::kFull || (t != DType::F32 && t != DType::F64)) {
    return t;
  }
  return t == DType::F64 && storage == FloatStorage::kHalf ? DType::F32 : DType::BF16;
}

// Bytes of one element; 0 for types that have no native storage here.
constexpr size_t item_size(DType t) {
  switch (t) {
    case DType::U8:
    case DType::I8:
    case DType::Bool:
    case DType::F8E5M2:
    case DType::F8E4M3FN:
    case DType::F8E5M2FNUZ:
    case DType::F8E4M3FNUZ:
    case DType::F8E8M0FNU:
    case DType::F4E2M1X2:
      return 1;
    case DType::I16:
    case DType::F16:
    case DType::BF16:
    case DType::U16:
      return 2;
    case DType::I32:
    case DType::F32:
    case DType::C32:
    case DType::U32:
      return 4;
    case DType::I64:
    case DType::F64:
    case DType::C64:
    case DType::U64:
      return 8;
    case DType::C128:
      return 16;
    default:
      return 0;
  }
}

// The type of words as which kernels copy elements of types that only library calls compute on. A native type gives itself.
constexpr DType word_type(DType t) {
  if (is_native(t)) {
    return t;
  }
  switch (item_size(t)) {
    case 1:
      return DType::U8;
    case 2:
      return DType::I16;
    case 4:
      return DType::I32;
    case 8:
      return DType::I64;
    default:
      return t; // 16 bytes: C128 stands for its own word
  }
}

// Short names of the text form: f32, bf16, i64, pred (StableHLO's words with pred for bool).
const char* dtype_name(DType t);
// Binary digits of a native type: a floating type's significand, an integer type without its sign.
int significant_bits(DType t);
// Inverse of dtype_name; Undefined for an unknown name.
DType find_dtype(const char* name, size_t length);
// The nearest value of a floating type; v itself for the others.
double round_to(DType t, double v);
// The value modulo the width of an integer type; 0 or 1 for Bool.
int64_t wrap_to(DType t, int64_t v);
// The largest finite value of a native type; I64's is rounded to 2^63.
double largest_value(DType t);
// Whether ATen converts the number to a native type without its overflow error, in every release: as c10::overflows, so negative whole
// numbers wrap in unsigned types. False where releases differ: for fractions between the largest integer and the next (ATen truncates them
// from PyTorch 2.14 on) and for 2^63 (converted before 2.14).
bool fits(double v, DType t);
bool fits(int64_t v, DType t);

} // namespace torch_xla
