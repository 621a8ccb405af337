// Attention reads keys and values that were repeated for the heads of a group (grouped queries) as they were before.
#include <array>
#include <optional>

#include "ir/view.h"
#include "ops/tables.h"
#include "passes/graph_copy.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

constexpr size_t kHeads = 1; // of [B, H, T, E]

// A value before its repetition: a view of `base`, with fewer heads.
struct Shared {
  const Op* op; // of views
  ValueId base;
  ViewGeometry view;
};

bool is_view(const Node* node) {
  return node && node->op->kind == OpKind::kView;
}

// `view` without its dim of repetitions, of stride 0.
ViewGeometry without(const ViewGeometry& view, size_t dim) {
  ViewGeometry shared = view;
  shared.dims.clear();
  shared.strides.clear();
  for (size_t d = 0; d < view.dims.size(); ++d) {
    if (d != dim) {
      shared.dims.push_back(view.dims[d]);
      shared.strides.push_back(view.strides[d]);
    }
  }
  return shared;
}

// Nothing if v, [B, H, T, E], does not repeat its heads one after the other: by a view that repeats them in a dim after the heads, and a
// reshape that joins both dims.
std::optional<Shared> find_shared(const Graph& graph, ValueId v) {
  const Node* reshape = graph.find_producer(v);
  const Node* repeat = is_view(reshape) ? graph.find_producer(reshape->operands[0]) : nullptr;
  if (!is_view(repeat)) {
    return std::nullopt;
  }
  const ViewGeometry joined = view_geometry(graph, *reshape);
  const ViewGeometry repeated = view_geometry(graph, *repeat);
  const Dims& d = repeated.dims;
  const bool joins = d.size() == 5 && d[2] > 1 && repeated.strides[2] == 0 && joined.dims == Dims{d[0], d[1] * d[2], d[3], d[4]};
  const bool is_plain = joined.offset == 0 && joined.moved_by == kNoValue &&
      same_strides(joined.base_dims, joined.base_strides, contiguous_strides(joined.base_dims)) &&
      same_strides(joined.dims, joined.strides, contiguous_strides(joined.dims));
  if (!joins || !is_plain) {
    return std::nullopt;
  }
  return Shared{repeat->op, repeat->operands[0], without(repeated, 2)};
}

class HeadSharing : private GraphCopy {
 public:
  explicit HeadSharing(const Graph& graph) : GraphCopy(graph) {}

  // Nothing if no attention shares heads.
  std::optional<Graph> run() {
    add_inputs();
    for (const Node& node : from_.nodes) {
      if (!is_attention(*node.op) || !share(node)) {
        copy(node);
      }
    }
    return changed_ ? std::optional<Graph>(take_graph()) : std::nullopt;
  }

 private:
  bool share(const Node& node) {
    const std::optional<Shared> key = find_shared(from_, node.operands[1]);
    const std::optional<Shared> value = find_shared(from_, node.operands[2]);
    if (!key || !value || key->view.dims[kHeads] != value->view.dims[kHeads]) {
      return false;
    }
    InlineVec<ValueId, 4> operands = map_operands(node);
    operands[1] = add_view(*key->op, key->view, get_mapped(key->base), node.location);
    operands[2] = add_view(*value->op, value->view, get_mapped(value->base), node.location);
    const ValueId first = graph_.add_node(*node.op, std::move(operands), node.attrs, result_types(node), node.location);
    for (int32_t i = 0; i < node.num_results; ++i) {
      mapped_[node.result(i)] = first + i;
    }
    changed_ = true;
    return true;
  }

  bool changed_ = false;
};

} // namespace

void share_heads(Graph& graph) {
  if (std::optional<Graph> shared = HeadSharing(graph).run()) {
    graph = std::move(*shared);
  }
}

} // namespace torch_xla
