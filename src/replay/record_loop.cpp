// Records the node that runs a body in turns.
#include "replay/record_loop.h"

#include <map>
#include <tuple>

#include "core/errors.h"
#include "ir/builder.h"
#include "ops/registry.h"
#include "recording/capture.h"
#include "recording/copy.h"
#include "recording/generator.h"

namespace torch_xla {
namespace {

void check_fits(const Body& body, const LoopCall& call) {
  const Graph& graph = body.computation->graph;
  size_t carried = call.carried.size();
  XLA_CHECK(graph.outputs.size() >= carried, "the body gives ", graph.outputs.size(), " values, but ", carried, " are carried");
  for (size_t i = 0; i < carried; ++i) {
    const Type& given = graph.type(graph.parameters[i]);
    const Type& next = graph.type(graph.outputs[i]);
    XLA_CHECK(
        given == next,
        "a loop carries values of the same shape and dtype from turn to turn, but value ",
        i,
        " is ",
        type_text(given),
        " and becomes ",
        type_text(next));
  }
}

// New seed and offset by the old ones.
using Drawn = std::map<std::pair<uint64_t, uint64_t>, std::pair<uint64_t, uint64_t>>;

void draw(int device, const std::vector<Computation::Draw>& draws, std::vector<Number>& numbers, Drawn& drawn) {
  for (const Computation::Draw& draw : draws) {
    uint64_t& seed = numbers[static_cast<size_t>(draw.seed)].bits;
    uint64_t& offset = numbers[static_cast<size_t>(draw.offset)].bits;
    auto [place, is_new] = drawn.try_emplace({seed, offset});
    if (is_new) {
      place->second = next_philox(device, std::nullopt, 1);
    }
    std::tie(seed, offset) = place->second;
  }
}

} // namespace

std::vector<at::Tensor> record_loop(int device, const Body& body, const LoopCall& call) {
  static const Op& op = get_op("xla::loop");
  check_fits(body, call);
  const std::vector<at::Tensor> carried = without_bits(call.carried);
  const std::vector<at::Tensor> sliced = without_bits(call.sliced);
  Recording recording(device);
  InlineVec<ValueId, 4> operands;
  for (const std::vector<at::Tensor>* list : {&carried, &sliced, &body.shared}) {
    for (const at::Tensor& t : *list) {
      operands.push_back(recording.read(t));
    }
  }
  for (const Number& number : body.numbers) {
    operands.push_back(recording.trace().add_scalar(number.dtype, number.bits));
  }
  Attrs attrs(5);
  attrs[kLoopBody] = body.computation;
  attrs[kLoopCarried] = static_cast<int64_t>(call.carried.size());
  attrs[kLoopSliced] = static_cast<int64_t>(call.sliced.size());
  attrs[kLoopTrips] = call.trips ? Attr(*call.trips) : Attr();
  attrs[kLoopReverse] = call.reverse;
  InferContext context(recording.graph(), {operands.data(), operands.size()}, attrs);
  op.infer(context);
  std::vector<Type> types = std::move(context.results());
  ValueId first = recording.node(op, std::move(operands), std::move(attrs), types);
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < types.size(); ++i) {
    results.push_back(recording.wrap(first + static_cast<ValueId>(i)));
  }
  return results;
}

std::vector<Body> with_new_draws(int device, std::vector<Body> bodies) {
  Drawn drawn;
  for (Body& body : bodies) {
    draw(device, body.computation->draws, body.numbers, drawn);
  }
  return bodies;
}

std::vector<Number> draw_again(int device, const std::vector<Computation::Draw>& draws, std::vector<Number> numbers) {
  Drawn drawn;
  draw(device, draws, numbers, drawn);
  return numbers;
}

} // namespace torch_xla
