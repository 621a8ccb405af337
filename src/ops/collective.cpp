// Collectives between the replicas of a run: calls of the kernels in distributed/collectives.cpp, in the order in which they were recorded.
#include "ops/row.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// The error of its neighbours' calls reveals a lost replica. An out form may get the memory of operand 0.
constexpr uint32_t kMeets = kOtherLibrary | kCollective | kChecksValues;

constinit const Op kRows[] = {
    CALL_OF("xla::all_reduce", kAllTypes, .traits = kMeets, .out_form = "out"),
    CALL_OF("xla::all_gather", kAllTypes, .traits = kMeets),
    CALL_OF("xla::reduce_scatter", kAllTypes, .traits = kMeets),
    CALL_OF("xla::all_to_all", kAllTypes, .traits = kMeets),
    CALL_OF("xla::collective_permute", kAllTypes, .traits = kMeets),
    CALL_OF("xla::broadcast", kAllTypes, .traits = kMeets),
    CALL_OF("xla::send", kAllTypes, .traits = kMeets),
    CALL_OF("xla::recv", kAllTypes, .traits = kMeets),
};

} // namespace

std::span<const Op> collective_ops() {
  return kRows;
}

} // namespace torch_xla
