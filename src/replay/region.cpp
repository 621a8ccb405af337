// Takes a region out of a trace and appends it to others.
#include "replay/region.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

#include "core/errors.h"
#include "recording/append.h"
#include "recording/copy.h"
#include "replay/record_loop.h"

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

// The known facts about a region's results during its description.
struct Results {
  const Tensors& arguments;
  const Tensors& tensors;
  Tensors storages; // as tensors of all their elements

  // Whether the result is a view of a new storage: it shares one with another result, or no dense tensor has its strides.
  bool is_view(size_t i) const {
    const at::Tensor& t = tensors[i];
    auto shares = [&](const at::Tensor& other) { return other.is_alias_of(t); };
    if (has_bits(t) || t.numel() == 0 || std::any_of(arguments.begin(), arguments.end(), shares)) {
      return false;
    }
    return std::count_if(tensors.begin(), tensors.end(), shares) > 1 || !t.is_non_overlapping_and_dense();
  }

  std::optional<size_t> find_storage(const at::Tensor& t) {
    for (size_t i = 0; i < storages.size(); ++i) {
      if (storages[i].is_alias_of(t)) {
        return storages[i].scalar_type() == t.scalar_type() ? std::make_optional(i) : std::nullopt;
      }
    }
    const int64_t elements = static_cast<int64_t>(t.storage().nbytes() / t.itemsize());
    storages.push_back(t.as_strided({elements}, {1}, 0));
    return storages.size() - 1;
  }

  Region::Result describe(size_t i) {
    using Kind = Region::Result::Kind;
    const at::Tensor& t = tensors[i];
    if (auto argument = find_same(arguments, arguments.size(), t)) {
      return {.kind = Kind::kArgument, .index = *argument, .strides = {}};
    }
    if (auto earlier = find_same(tensors, i, t)) {
      return {.kind = Kind::kResult, .index = *earlier, .strides = {}};
    }
    if (auto storage = is_view(i) ? find_storage(t) : std::nullopt) {
      return {Kind::kView, *storage, to_dims(t.strides()), to_dims(t.sizes()), t.storage_offset()};
    }
    const bool row_major = t.is_contiguous() || !t.is_non_overlapping_and_dense();
    return {.kind = Kind::kNew, .index = 0, .strides = row_major ? Dims() : to_dims(t.strides())};
  }
};

struct Appended {
  Tensors results; // without views and repeated results
  Tensors storages;
  std::vector<std::pair<at::Tensor, at::Tensor>> shown; // written arguments with pending bits, with their new contents
};

// `arguments`: the shown elements of the given tensors.
Appended append_region(const Region& region, const Tensors& given, const Tensors& arguments) {
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
  Appended appended;
  Tensors& results = appended.results;
  for (const Region::Result& result : region.results) {
    switch (result.kind) {
      case Region::Result::Kind::kNew:
        results.push_back(recording.wrap(appending.at(*output++), result.strides));
        break;
      case Region::Result::Kind::kArgument:
        results.push_back(given[result.index]);
        break;
      case Region::Result::Kind::kResult:
      case Region::Result::Kind::kView:
        results.emplace_back(); // made after the recording
        break;
    }
  }
  for (size_t i = 0; i < region.num_storages; ++i) {
    appended.storages.push_back(recording.wrap(appending.at(*output++)));
  }
  for (size_t argument : region.written) {
    const at::Tensor& target = given[argument];
    const ValueId contents = appending.at(*output++);
    if (!target.is_same(arguments[argument])) {
      appended.shown.emplace_back(target, recording.wrap(contents));
      continue;
    }
    recording.write(target, contents);
    if (!target.is_inference()) {
      target.unsafeGetTensorImpl()->bump_version();
    }
  }
  return appended;
}

// Waits for one value that the region computes: then all of it has run.
void wait_for_one(const Region& region, const Tensors& arguments, const Tensors& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    const Region::Result::Kind kind = region.results[i].kind;
    const bool is_new = kind == Region::Result::Kind::kNew || kind == Region::Result::Kind::kView;
    if (is_new && results[i].numel() > 0) {
      wait_for_value(results[i]);
      return;
    }
  }
  if (!region.written.empty()) {
    wait_for_value(arguments[region.written[0]]);
  }
}

} // namespace

Region take_region(Capture& capture, const Tensors& arguments, const Tensors& results) {
  Region region;
  region.num_arguments = arguments.size();
  Results described{arguments, results, {}};
  Tensors wanted;
  for (size_t i = 0; i < results.size(); ++i) {
    region.results.push_back(described.describe(i));
    if (region.results.back().kind == Region::Result::Kind::kNew) {
      wanted.push_back(results[i]);
    }
  }
  region.num_storages = described.storages.size();
  wanted.insert(wanted.end(), described.storages.begin(), described.storages.end());
  region.written = capture.find_written(arguments);
  for (size_t argument : region.written) {
    wanted.push_back(arguments[argument].alias()); // as another tensor: the argument itself stands for its old content
  }
  region.body = capture.take(arguments, wanted);
  region.device = capture.device();
  region.is_told_at_call = capture.is_told_at_call;
  return region;
}

Tensors record_region(const Region& region, const Tensors& arguments) {
  XLA_CHECK(
      arguments.size() == region.num_arguments, "a compiled region takes ", region.num_arguments, " tensors, but got ", arguments.size());
  Appended appended = append_region(region, arguments, without_bits(arguments));
  for (auto& [target, contents] : appended.shown) {
    target.copy_(contents);
  }
  const at::AutoDispatchBelowADInplaceOrView unknown_to_autograd;
  for (size_t i = 0; i < region.results.size(); ++i) {
    const Region::Result& result = region.results[i];
    if (result.kind == Region::Result::Kind::kView) {
      const at::Tensor& storage = appended.storages[result.index];
      appended.results[i] = storage.as_strided(to_ref(result.sizes), to_ref(result.strides), result.offset);
    } else if (result.kind == Region::Result::Kind::kResult) {
      appended.results[i] = appended.results[result.index];
    }
  }
  if (region.is_told_at_call) {
    wait_for_one(region, arguments, appended.results);
  }
  return std::move(appended.results);
}

} // namespace torch_xla
