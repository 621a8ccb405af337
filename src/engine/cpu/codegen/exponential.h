// Parts shared by e^x and the functions built on it, for floats.
#pragma once

#include "engine/cpu/codegen/vec.h"

namespace torch_xla::cpu {

constexpr double kLn2 = 0.693147180559945309;
constexpr double kLn2Hi = 0.693145751953125; // 16 significant bits: n * kLn2Hi is exact
constexpr double kLn2Lo = 1.42860682030941723e-6;

// x = n * ln 2 + r, |r| <= ln 2 / 2.
struct Reduced {
  Value* n; // float
  Value* bits; // I32; its low 9 bits are those of n
  Value* r;
};
Reduced reduce_exp(const Vec& v, Value* x);
// The same where an error of 2e-9 * n in r does no harm.
Reduced reduce_exp_roughly(const Vec& v, Value* x);

// 2^(n + more) if that is in [-126, 127]; the low 9 bits are those of n.
Value* power_of_two(const Vec& v, Value* bits, int64_t more = 0);
// 2^n * x for n in [-252, 0], also if the result is subnormal.
Value* scale_down(const Vec& v, Value* x, const Reduced& reduced);
// e^r - 1
Value* short_expm1(const Vec& v, Value* r);
// e^x, also if the result is subnormal or overflows.
Value* scaled_exp(const Vec& v, const Reduced& x);
// e^x for x that is NaN or in [-104, 89].
Value* exp_bounded(const Vec& v, Value* x);

} // namespace torch_xla::cpu
