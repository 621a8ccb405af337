// Operations with a graph as attribute, loops and composites, and custom calls.
#include "core/errors.h"
#include "ir/composite.h"
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

void expand_mark(ExpandContext& c) {
  c.set(0, c.raw(0));
}

// On one device.
void expand_constraint(ExpandContext& c) {
  c.set(0, c.raw(0));
}

void infer_composite(InferContext& c) {
  const Graph& body = body_of(c.attr(kCompositeBody)).graph;
  XLA_CHECK(c.size() == body.parameters.size() + body.scalars.size(), "the operands of a composite are not its decomposition's");
  for (ValueId v : body.outputs) {
    c.add_result(body.type(v).dtype, body.type(v).dims);
  }
}

void infer_custom_call(InferContext& c) {
  const Dims shapes = c.get_dims(kCallShapes);
  size_t at = 0;
  for (int64_t dtype : c.get_dims(kCallTypes)) {
    XLA_CHECK(at < shapes.size() && at + shapes[at] < shapes.size(), "a custom call has more types of results than shapes");
    const auto rank = static_cast<size_t>(shapes[at]);
    c.add_result(static_cast<DType>(dtype), Dims(shapes.data() + at + 1, rank));
    at += 1 + rank;
  }
}

constinit const Op kRows[] = {
    {.name = "xla::loop", .kind = OpKind::kLibrary, .infer = infer_loop, .reads = kDenseOperands, .traits = kOwnKernel | kChecksValues},
    {.name = "xla::sharding_constraint",
     .kind = OpKind::kComposite,
     .infer = like_operand<0>,
     .expand = expand_constraint,
     .traits = kOwnKernel},
    {.name = "xla::mark_tensor", .kind = OpKind::kComposite, .infer = like_operand<0>, .expand = expand_mark, .traits = kOwnKernel},
    // Only graphs for plugins have composites: passes/outline.cpp makes them of marks.
    {.name = "xla::composite", .kind = OpKind::kLibrary, .infer = infer_composite, .dtypes = kAllTypes, .traits = kOwnKernel},
    {.name = "xla::custom_call",
     .kind = OpKind::kLibrary,
     .infer = infer_custom_call,
     .dtypes = kAllTypes,
     .traits = kOwnKernel | kOtherLibrary | kChecksValues},
};

} // namespace

std::span<const Op> control_ops() {
  return kRows;
}

std::optional<Sharding> find_constraint(const Node& node) {
  if (node.op->expand != &expand_constraint) {
    return std::nullopt;
  }
  return Sharding{std::get<Dims>(node.attrs[0]), std::get<Dims>(node.attrs[1])};
}

bool is_mark(const Op& op) {
  return op.expand == &expand_mark;
}

} // namespace torch_xla
