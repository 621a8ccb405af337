// Complex numbers: conversions, parts and Fourier transforms. Calls of ATen's kernels, with its own shape rules.
#include "ops/row.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

constinit const Op kRows[] = {
    CALL("_to_copy", kAllTypes, .traits = kOwnKernel), // conversions from and to complex types
    CALL("_conj_physical", kComplexes),
    LIBRARY("_fft_r2c", nullptr, .layout = ResultLayout::kSpectrum, .dtypes = kFloats),
    LIBRARY("_fft_c2r", nullptr, .layout = ResultLayout::kSpectrum, .dtypes = kComplexes),
    LIBRARY("_fft_c2c", nullptr, .layout = ResultLayout::kSpectrum, .dtypes = kComplexes),
    CALL("angle", kAllTypes),
    CALL("complex", kFloats, .traits = kSameDtype),
    CALL("polar", kFloats),
};

} // namespace

std::span<const Op> complex_ops() {
  return kRows;
}

} // namespace torch_xla
