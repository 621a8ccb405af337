// Arithmetic on strides: composition of views, memory orders that ATen's kernels return.
#include <algorithm>
#include <string_view>

#include "engine/cpu/layout.h"

namespace torch_xla::cpu {
namespace {

// One dimension of memory: extent, the stride that the view's numbers are meant in, the stride it really has.
struct MemoryDim {
  int64_t extent;
  int64_t base;
  int64_t actual;
};

// Largest base stride first; neighbours that are dense in both numberings become one.
std::vector<MemoryDim> merge_memory_dims(const Dims& dims, const Dims& base, const Dims& actual) {
  std::vector<MemoryDim> sorted;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] != 1) {
      sorted.push_back({dims[d], base[d], actual[d]});
    }
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const MemoryDim& a, const MemoryDim& b) { return a.base > b.base; });
  std::vector<MemoryDim> merged;
  for (const MemoryDim& dim : sorted) {
    if (!merged.empty() && merged.back().base == dim.base * dim.extent && merged.back().actual == dim.actual * dim.extent) {
      merged.back() = {merged.back().extent * dim.extent, dim.base, dim.actual};
    } else {
      merged.push_back(dim);
    }
  }
  return merged;
}

// Writes a distance as digits in the base strides. Adds count * digit to `reached`; returns the distance in actual strides.
int64_t translate(const std::vector<MemoryDim>& memory, int64_t distance, int64_t count, std::vector<int64_t>& reached, bool* exact) {
  int64_t result = 0;
  for (size_t d = 0; d < memory.size(); ++d) {
    int64_t digit = memory[d].base > 0 ? distance / memory[d].base : 0;
    distance -= digit * memory[d].base;
    result += digit * memory[d].actual;
    reached[d] += digit * count;
  }
  *exact = *exact && distance == 0;
  return result;
}

bool is_channels_last(const Dims& dims, const Dims& strides) {
  if (dims.size() != 4 && dims.size() != 5) {
    return false;
  }
  int64_t step = dims[1];
  for (size_t d = dims.size(); d-- > 2;) {
    if (dims[d] != 1 && strides[d] != step) {
      return false;
    }
    step *= dims[d];
  }
  return (dims[1] == 1 || strides[1] == 1) && (dims[0] == 1 || strides[0] == step);
}

} // namespace

Dims channels_last_strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  int64_t step = dims[1];
  for (size_t d = dims.size(); d-- > 2;) {
    strides[d] = step;
    step *= dims[d];
  }
  strides[0] = step;
  return strides;
}

namespace {

// Contiguous memory of [batch, length, heads, size] seen as [batch, heads, length, size], with or without the last dimension.
Dims attention_strides(const Dims& dims) {
  if (dims.size() == 3) {
    return {dims[1] * dims[2], 1, dims[1]};
  }
  return {dims[1] * dims[2] * dims[3], dims[3], dims[1] * dims[3], 1};
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

} // namespace

bool same_strides(const Dims& dims, const Dims& a, const Dims& b) {
  if (a.size() != dims.size() || b.size() != dims.size()) {
    return false;
  }
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] > 1 && a[d] != b[d]) {
      return false;
    }
  }
  return true;
}

std::optional<StridedView> compose_view(
    const Dims& dims, const Dims& base_strides, const Dims& actual, const Dims& view_dims, const StridedView& view) {
  if (same_strides(dims, base_strides, actual) || num_elements(view_dims) == 0) {
    return view;
  }
  std::vector<MemoryDim> memory = merge_memory_dims(dims, base_strides, actual);
  std::vector<int64_t> reached(memory.size());
  bool exact = true;
  StridedView result;
  result.offset = translate(memory, view.offset, 1, reached, &exact);
  for (size_t d = 0; d < view_dims.size(); ++d) {
    result.strides.push_back(view_dims[d] == 1 ? 0 : translate(memory, view.strides[d], view_dims[d] - 1, reached, &exact));
  }
  for (size_t d = 0; d < memory.size(); ++d) {
    exact = exact && reached[d] < memory[d].extent;
  }
  return exact ? std::optional<StridedView>(std::move(result)) : std::nullopt;
}

Dims predict_library_strides(const Graph& graph, const Node& node, int32_t i, const std::vector<Place>& places) {
  const Dims& dims = graph.type(node.result(i)).dims;
  std::string_view name = node.op->name;
  if (contains(name, "scaled_dot_product") && dims.size() >= 3) {
    return attention_strides(dims);
  }
  bool spatial = contains(name, "conv") || contains(name, "pool") || contains(name, "upsample");
  if (!spatial || dims.size() < 4) {
    return contiguous_strides(dims);
  }
  for (size_t k = 0; k < std::min<size_t>(node.operands.size(), 3); ++k) {
    ValueId v = node.operands[k];
    if (v == kNoValue || graph.type(v).dims.size() != dims.size()) {
      continue;
    }
    const Dims& from = graph.type(v).dims;
    if (is_channels_last(from, places[v].strides) && !same_strides(from, places[v].strides, contiguous_strides(from))) {
      return channels_last_strides(dims);
    }
  }
  return contiguous_strides(dims);
}

} // namespace torch_xla::cpu
