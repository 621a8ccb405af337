// Taking a region out of a trace and appending it to others.
#include "tensor/region.h"

#include "core/errors.h"
#include "tensor/append.h"

namespace torch_xla {
namespace {

using Tensors = std::vector<at::Tensor>;

std::optional<size_t> find_same(const Tensors& tensors, size_t end, const at::Tensor& t) {
  for (size_t i = 0; i < end; ++i) {
    if (tensors[i].is_same(t)) {
      return i;
    }
  }
  return std::nullopt;
}

// The results that are tensors of their own, with their strides where these are a dense order of the dims; others become row-major.
Region::Result describe(const Tensors& arguments, const Tensors& results, size_t i) {
  using Kind = Region::Result::Kind;
  if (auto argument = find_same(arguments, arguments.size(), results[i])) {
    return {.kind = Kind::kArgument, .index = *argument, .strides = {}};
  }
  if (auto earlier = find_same(results, i, results[i])) {
    return {.kind = Kind::kResult, .index = *earlier, .strides = {}};
  }
  const bool row_major = results[i].is_contiguous() || !results[i].is_non_overlapping_and_dense();
  return {.kind = Kind::kNew, .index = 0, .strides = row_major ? Dims() : to_dims(results[i].strides())};
}

// Appends the region. `arguments` are what the tensors that were given show; `shown` gets those that do not lie so, with their new contents.
Tensors append_region(
    const Region& region, const Tensors& given, const Tensors& arguments, std::vector<std::pair<at::Tensor, at::Tensor>>& shown) {
  const Body& body = region.body;
  const Graph& graph = body.computation->graph;
  const std::vector<Number> numbers = draw_again(region.device, body.computation->draws, body.numbers);
  Recording recording(region.device);
  Appending appending(recording, graph);
  for (size_t i = 0; i < arguments.size(); ++i) {
    appending.give(i, arguments[i]);
  }
  for (size_t i = 0; i < body.shared.size(); ++i) {
    appending.give(arguments.size() + i, body.shared[i]);
  }
  appending.give_numbers(numbers);
  appending.append_nodes();
  auto output = graph.outputs.begin();
  Tensors results;
  for (const Region::Result& result : region.results) {
    switch (result.kind) {
      case Region::Result::Kind::kNew:
        results.push_back(recording.wrap(appending.at(*output++), result.strides));
        break;
      case Region::Result::Kind::kArgument:
        results.push_back(given[result.index]);
        break;
      case Region::Result::Kind::kResult:
        results.push_back(results[result.index]);
        break;
    }
  }
  for (size_t argument : region.written) {
    const at::Tensor& target = given[argument];
    const ValueId contents = appending.at(*output++);
    if (!target.is_same(arguments[argument])) {
      shown.emplace_back(target, recording.wrap(contents));
      continue;
    }
    recording.write(target, contents);
    if (!target.is_inference()) {
      target.unsafeGetTensorImpl()->bump_version();
    }
  }
  return results;
}

} // namespace

Region take_region(Capture& capture, const Tensors& arguments, const Tensors& results) {
  Region region;
  region.num_arguments = arguments.size();
  Tensors wanted;
  for (size_t i = 0; i < results.size(); ++i) {
    region.results.push_back(describe(arguments, results, i));
    if (region.results.back().kind == Region::Result::Kind::kNew) {
      wanted.push_back(results[i]);
    }
  }
  region.written = capture.find_written(arguments);
  for (size_t argument : region.written) {
    wanted.push_back(arguments[argument].alias()); // by another tensor: the argument itself stands for what it was
  }
  region.body = capture.take(arguments, wanted);
  region.device = capture.device();
  return region;
}

Tensors record_region(const Region& region, const Tensors& arguments) {
  XLA_CHECK(
      arguments.size() == region.num_arguments, "a compiled region takes ", region.num_arguments, " tensors, but got ", arguments.size());
  std::vector<std::pair<at::Tensor, at::Tensor>> shown;
  Tensors results = append_region(region, arguments, without_bits(arguments), shown);
  for (auto& [target, contents] : shown) {
    target.copy_(contents);
  }
  return results;
}

} // namespace torch_xla
