// Control flow: loops with a computation as body.
#include "core/errors.h"
#include "ir/computation.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

void check_operands(const InferContext& c, const Graph& body, size_t carried, size_t sliced) {
  XLA_CHECK(c.size() == body.parameters.size() + body.scalars.size(), "the operands of a loop are not its body's");
  for (size_t i = 0; i < body.parameters.size(); ++i) {
    Type given = c.operand(i);
    Type wanted = body.type(body.parameters[i]);
    if (i >= carried && i < carried + sliced) {
      bool fits = !given.dims.empty() && !c.is_none(kLoopTrips) && given.dims[0] == c.get_int(kLoopTrips);
      XLA_CHECK(fits, "a loop has another number of turns than ", type_text(given), " has slices");
      given.dims = Dims(given.dims.data() + 1, given.dims.size() - 1);
    }
    XLA_CHECK(given == wanted, "the body of a loop was recorded for ", type_text(wanted), " and gets ", type_text(given));
  }
}

// Carried values as they are, then the joined results of the turns.
void infer_loop(InferContext& c) {
  const Graph& body = body_of(c.attr(kLoopBody)).graph;
  auto carried = static_cast<size_t>(c.get_int(kLoopCarried));
  auto sliced = static_cast<size_t>(c.get_int(kLoopSliced));
  check_operands(c, body, carried, sliced);
  for (size_t i = 0; i < body.outputs.size(); ++i) {
    Type type = body.type(body.outputs[i]);
    Dims joined{c.get_int(kLoopTrips)};
    for (int64_t d : type.dims) {
      joined.push_back(d);
    }
    c.add_result(type.dtype, i < carried ? type.dims : joined);
  }
}

constinit const Op kRows[] = {
    {.name = "xla::loop", .kind = OpKind::kLibrary, .infer = infer_loop, .reads = kDenseOperands, .traits = kOwnKernel | kChecksValues},
};

} // namespace

std::span<const Op> control_ops() {
  return kRows;
}

} // namespace torch_xla
