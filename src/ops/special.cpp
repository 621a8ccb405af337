// Special functions of ATen's CPU kernels, with its own shape rules.
#include "ops/row.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

constinit const Op kRows[] = {
    CALL("special_airy_ai", kWhole | kFloats),
    CALL("special_bessel_j0", kWhole | kFloats),
    CALL("special_bessel_j1", kWhole | kFloats),
    CALL("special_bessel_y0", kWhole | kFloats),
    CALL("special_bessel_y1", kWhole | kFloats),
    CALL("special_erfcx", kWhole | kFloats),
    CALL("special_log_ndtr", kWhole | kFloats),
    CALL("special_modified_bessel_i0", kWhole | kFloats),
    CALL("special_modified_bessel_i1", kWhole | kFloats),
    CALL("special_modified_bessel_k0", kWhole | kFloats),
    CALL("special_modified_bessel_k1", kWhole | kFloats),
    CALL("special_ndtri", kWhole | kFloats),
    CALL("special_scaled_modified_bessel_k0", kWhole | kFloats),
    CALL("special_scaled_modified_bessel_k1", kWhole | kFloats),
    CALL("special_spherical_bessel_j0", kWhole | kFloats),
    CALL("special_zeta", kWhole | kFloats),
    CALL("special_chebyshev_polynomial_t", kWhole | kFloats),
    CALL("special_chebyshev_polynomial_u", kWhole | kFloats),
    CALL("special_chebyshev_polynomial_v", kWhole | kFloats),
    CALL("special_chebyshev_polynomial_w", kWhole | kFloats),
    CALL("special_hermite_polynomial_h", kWhole | kFloats),
    CALL("special_hermite_polynomial_he", kWhole | kFloats),
    CALL("special_laguerre_polynomial_l", kWhole | kFloats),
    CALL("special_legendre_polynomial_p", kWhole | kFloats),
    CALL("special_shifted_chebyshev_polynomial_t", kWhole | kFloats),
    CALL("special_shifted_chebyshev_polynomial_u", kWhole | kFloats),
    CALL("special_shifted_chebyshev_polynomial_v", kWhole | kFloats),
    CALL("special_shifted_chebyshev_polynomial_w", kWhole | kFloats),
    CALL("special_entr", kAllTypes & ~kComplexes),
    CALL("special_i0e", kAllTypes & ~kComplexes),
    CALL("special_i1", kAllTypes & ~kComplexes),
    CALL("special_i1e", kAllTypes & ~kComplexes),
    CALL("special_xlog1py", kAllTypes & ~kComplexes),
    CALL("polygamma", kAllTypes & ~kComplexes),
    CALL("signbit", kAllTypes & ~kComplexes),
    CALL("igamma", kAllFloats),
    CALL("igammac", kAllFloats),
    CALL("nextafter", kAllFloats, .traits = kSameDtype),
    CALL("logaddexp2", kAllFloats),
    CALL("frexp.Tensor", kAllFloats),
    CALL("gcd", kIntegers, .traits = kSameDtype),
    CALL("lcm", kIntegers, .traits = kSameDtype),
};

} // namespace

std::span<const Op> special_ops() {
  return kRows;
}

} // namespace torch_xla
