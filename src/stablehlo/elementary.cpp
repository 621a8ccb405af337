// The formulas, exact to a few units in the last place also where a plain one cancels or overflows.
#include "stablehlo/elementary.h"

namespace torch_xla::stablehlo {
namespace {

Hlo atan2(Hlo y, Hlo x) {
  return binary("atan2", y, x);
}

Hlo sqrt(Hlo x) {
  return unary("sqrt", x);
}

Hlo exp(Hlo x) {
  return unary("exponential", x);
}

// e^x/2 for x > 0 in two halves: e^x overflows first.
Hlo half_exp(Hlo x) {
  Hlo root = exp(x * 0.5);
  return root * 0.5 * root;
}

// Above it, e^-x is too small beside e^x to matter, and e^x does not overflow yet.
double large(DType t) {
  return t == DType::F64 ? 700 : t == DType::F16 ? 10 : 80;
}

} // namespace

Hlo asin(Hlo x) {
  return atan2(x, sqrt((1 - x) * (1 + x)) + 1) * 2;
}

Hlo acos(Hlo x) {
  return atan2(sqrt(1 - x), sqrt(1 + x)) * 2;
}

// Both sides of the fraction within [0, 1]: XLA's CPU client loses a large one.
Hlo atan(Hlo x) {
  Hlo size = unary("abs", x);
  Hlo is_large = size > 1;
  return atan2(select(is_large, unary("sign", x), x), select(is_large, 1 / size, 1));
}

Hlo sinh(Hlo x) {
  Hlo size = unary("abs", x);
  Hlo growth = unary("exponential_minus_one", size);
  Hlo result = select(size > large(x.dtype()), half_exp(size), (growth + growth / (growth + 1)) * 0.5);
  return select(x < 0, -result, result);
}

Hlo cosh(Hlo x) {
  Hlo size = unary("abs", x);
  Hlo growth = exp(size);
  return select(size > large(x.dtype()), half_exp(size), (growth + 1 / growth) * 0.5);
}

} // namespace torch_xla::stablehlo
