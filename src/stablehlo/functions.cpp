// Functions of one number without a primitive.
#include "stablehlo/call.h"

namespace torch_xla::stablehlo {
namespace {

constexpr char kErfInv[] = "chlo.erf_inv";
constexpr char kLgamma[] = "chlo.lgamma";
constexpr char kDigamma[] = "chlo.digamma";

template <const char* Name>
void write_function(Call& c) {
  c.set(0, unary(Name, c.computed(0)));
}

constexpr int kTerms = 40; // of both series of i0, for double precision
constexpr double kLarge = 20;

// The power series, with positive terms only: sum of (x^2/4)^k / k!^2.
Hlo small_i0(const Hlo& x) {
  Hlo t = x * x / 4;
  Hlo sum = constant_like(x, 1);
  for (int k = kTerms; k > 0; --k) {
    sum = sum * (t * (1.0 / k / k)) + 1; // a division would be long in double precision on TPUs
  }
  return sum;
}

// The asymptotic series times e^x / sqrt(2 pi x); the exponential in two halves, as i0 is smaller than it.
Hlo large_i0(const Hlo& x) {
  constexpr double kTwoPi = 6.28318530717958647693;
  Hlo inverse = 1 / x;
  Hlo sum = constant_like(x, 1);
  for (int k = kTerms / 2; k > 0; --k) {
    double odd = 2.0 * k - 1;
    sum = sum * (inverse * (odd * odd / (8.0 * k))) + 1;
  }
  Hlo root = unary("exponential", x / 2);
  return root / unary("sqrt", x * kTwoPi) * sum * root;
}

void write_i0(Call& c) {
  Hlo x = unary("abs", c.computed(0));
  Hlo is_large = x > kLarge;
  Hlo large = select(is_large, x, kLarge);
  c.set(0, select(is_large, large_i0(large), small_i0(select(is_large, constant_like(x, 0), x))));
}

constexpr Writer kWriters[] = {
    {"aten::erfinv", write_function<kErfInv>},
    {"aten::lgamma", write_function<kLgamma>},
    {"aten::digamma", write_function<kDigamma>},
    {"aten::i0", write_i0},
};

} // namespace

std::span<const Writer> function_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
