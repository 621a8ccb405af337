// What differs between the releases of PyTorch that this tree builds against; no other file asks for the release.
#pragma once

#include <torch/csrc/profiler/orchestration/observer.h>
#include <torch/headeronly/version.h>

// Whether the headers are those of PyTorch MAJOR.MINOR or a later release.
#define TORCH_XLA_TORCH_AT_LEAST(MAJOR, MINOR) \
  (TORCH_VERSION_MAJOR > (MAJOR) || (TORCH_VERSION_MAJOR == (MAJOR) && TORCH_VERSION_MINOR >= (MINOR)))

namespace torch_xla {

// An operator of our lists that some releases lack. There its row and its kernels are left out.
struct OperatorOfSomeReleases {
  const char* name; // with its namespace and overload
  const char* last; // the last release that has it
  const char* now; // what programs call in its place
};

inline constexpr OperatorOfSomeReleases kOperatorsOfSomeReleases[] = {
    {"aten::cholesky", "2.13", "aten::linalg_cholesky"},
    {"aten::qr", "2.13", "aten::linalg_qr"},
};

// Whether flash attention for the CPU takes operands of three dims.
inline constexpr bool kFlashTakesThreeDims = TORCH_XLA_TORCH_AT_LEAST(2, 14);

// Whether arange() rounds fractions to int64 before it counts its elements.
inline constexpr bool kRangeRoundsFirst = !TORCH_XLA_TORCH_AT_LEAST(2, 14);

// Whether PyTorch's profiler takes the events of all threads. The function is looked for, as a release that is not known may have either.
template <typename State = torch::profiler::impl::ProfilerStateBase>
bool profiles_all_threads() {
  if constexpr (requires { State::getGlobal(); }) { // from 2.14 on
    return State::getGlobal() != nullptr;
  } else {
    return State::get(/*global=*/true) != nullptr;
  }
}

} // namespace torch_xla
