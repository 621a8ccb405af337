// Composites: each part between marked inputs and outputs becomes one node with the part as its decomposition.
#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <ranges>

#include "ir/builder.h"
#include "ir/composite.h"
#include "ir/computation.h"
#include "ops/registry.h"
#include "ops/tables.h"
#include "passes/graph_copy.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

using Operands = InlineVec<ValueId, 4>;

struct Composite {
  std::vector<size_t> outputs; // nodes of the marks, by position
  size_t at = 0; // the first of these nodes: the place of the composite
  ComputationRef body;
  Operands operands;
};

const Dims& numbers_of(const Node& mark) {
  return std::get<Dims>(mark.attrs[kMarkNumbers]);
}

std::span<const ValueId> inputs_of(const Node& mark) {
  return {mark.operands.data() + 1, mark.operands.size() - 1 - numbers_of(mark).size()};
}

bool is_output_mark(const Node& node) {
  return is_mark(*node.op) && !std::get<bool>(node.attrs[kMarkIsInput]) && !inputs_of(node).empty();
}

int64_t position_of(const Node& mark) {
  return std::get<int64_t>(mark.attrs[kMarkPosition]);
}

bool has_equal_inputs(const Node& a, const Node& b) {
  return std::ranges::equal(inputs_of(a), inputs_of(b));
}

std::vector<Composite> find_composites(const Graph& graph) {
  std::vector<Composite> composites;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& mark = graph.nodes[i];
    if (!is_output_mark(mark)) {
      continue;
    }
    auto takes = [&](const Composite& composite) {
      return std::all_of(composite.outputs.begin(), composite.outputs.end(), [&](size_t output) {
        const Node& other = graph.nodes[output];
        bool same = other.attrs[kMarkName] == mark.attrs[kMarkName] && other.attrs[kMarkAttributes] == mark.attrs[kMarkAttributes];
        return same && has_equal_inputs(other, mark) && position_of(other) != position_of(mark);
      });
    };
    auto found = std::find_if(composites.rbegin(), composites.rend(), takes);
    if (found == composites.rend()) {
      composites.push_back({{i}, i, nullptr, {}});
    } else {
      found->outputs.push_back(i);
    }
  }
  for (Composite& composite : composites) {
    auto is_before = [&](size_t a, size_t b) { return position_of(graph.nodes[a]) < position_of(graph.nodes[b]); };
    std::sort(composite.outputs.begin(), composite.outputs.end(), is_before);
  }
  return composites;
}

// By value: whether numbers alone determine it, as constants and draws.
std::vector<bool> find_constants(const Graph& graph) {
  std::vector<bool> constants(graph.values.size());
  for (ValueId v : graph.scalars) {
    constants[v] = true;
  }
  for (const Node& node : graph.nodes) {
    bool is_constant = std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId v) { return v == kNoValue || constants[v]; });
    for (int32_t i = 0; i < node.num_results; ++i) {
      constants[node.result(i)] = is_constant;
    }
  }
  return constants;
}

// Takes the decomposition of a composite out of the trace.
class Part {
 public:
  Part(const Graph& trace, const std::vector<bool>& constants, Composite& composite)
      : trace_(trace), constants_(constants), composite_(composite), mapped_(trace.values.size(), kNoValue), inside_(trace.values.size()) {
    inputs_ = inputs_of(trace.nodes[composite.at]);
    for (size_t output : composite.outputs) {
      const Node& mark = trace.nodes[output];
      const size_t first = 1 + inputs_.size();
      for (size_t i = 0; i < numbers_of(mark).size(); ++i) {
        numbers_[mark.operands[first + i]] = numbers_of(mark)[i];
      }
    }
  }

  // False if it cannot be one node: it has a collective, or reads what is computed after its first output.
  bool take() {
    for (ValueId v : inputs_) {
      inside_[v] = true;
      add_parameter(v);
    }
    size_t last = *std::max_element(composite_.outputs.begin(), composite_.outputs.end());
    for (size_t i = first_node(); i < last; ++i) {
      const Node& node = trace_.nodes[i];
      bool depends = std::any_of(node.operands.begin(), node.operands.end(), [this](ValueId v) { return v != kNoValue && inside_[v]; });
      for (int32_t r = 0; depends && r < node.num_results; ++r) {
        inside_[node.result(r)] = true;
      }
    }
    return add_needed(last) && finish(last);
  }

 private:
  bool is_input(ValueId v) const {
    return std::find(inputs_.begin(), inputs_.end(), v) != inputs_.end();
  }

  // Nothing before it depends on all inputs.
  size_t first_node() const {
    size_t first = trace_.nodes.size();
    for (ValueId v : inputs_) {
      first = std::min(first, static_cast<size_t>(trace_.values[v].index));
    }
    return first;
  }

  void add_parameter(ValueId v) {
    mapped_[v] = body_.add_parameter(trace_.type(v));
    composite_.operands.push_back(v);
  }

  // Whether the part computes it: it depends on an input, or is a constant that was recorded after one.
  bool is_part(ValueId v) const {
    return inside_[v] || (constants_[v] && static_cast<size_t>(trace_.values[v].index) > first_node());
  }

  // Finds the nodes of the part; values from outside become parameters, then numbers become scalars.
  bool add_needed(size_t last) {
    taken_.assign(last, false);
    std::vector<ValueId> open, outside, scalars;
    std::vector<bool> seen(trace_.values.size());
    for (size_t output : composite_.outputs) {
      open.push_back(trace_.nodes[output].operands[0]);
    }
    while (!open.empty()) {
      ValueId v = open.back();
      open.pop_back();
      if (v == kNoValue || seen[v] || is_input(v)) {
        continue;
      }
      seen[v] = true;
      const Node* node = trace_.find_producer(v);
      if (numbers_.count(v)) {
        continue;
      }
      if (trace_.values[v].kind == ValueKind::kScalar) {
        scalars.push_back(v);
      } else if (!node || !is_part(v)) {
        outside.push_back(v);
      } else {
        taken_[trace_.values[v].index] = true;
        open.insert(open.end(), node->operands.begin(), node->operands.end());
      }
    }
    std::sort(outside.begin(), outside.end());
    std::sort(scalars.begin(), scalars.end());
    for (ValueId v : outside) {
      add_parameter(v);
    }
    for (ValueId v : scalars) {
      mapped_[v] = body_.add_scalar(trace_.type(v).dtype);
      composite_.operands.push_back(v);
    }
    add_constants(seen);
    return std::all_of(outside.begin(), outside.end(), [this](ValueId v) {
      return !trace_.find_producer(v) || static_cast<size_t>(trace_.values[v].index) < composite_.at;
    });
  }

  void add_constants(const std::vector<bool>& needed) {
    Builder builder(body_);
    for (auto [v, bits] : numbers_) {
      DType dtype = trace_.type(v).dtype;
      if (needed[v]) {
        mapped_[v] = dtype == DType::F64 ? builder.constant(std::bit_cast<double>(bits), dtype) : builder.constant_int(bits, dtype);
      }
    }
  }

  bool finish(size_t last) {
    for (size_t i = 0; i < last; ++i) {
      const Node& node = trace_.nodes[i];
      if (!taken_[i]) {
        continue;
      }
      if (node.op->traits & kCollective) {
        return false;
      }
      copy(node);
    }
    for (size_t output : composite_.outputs) {
      body_.outputs.push_back(mapped_[trace_.nodes[output].operands[0]]);
    }
    composite_.body = make_computation(std::move(body_));
    return true;
  }

  void copy(const Node& node) {
    Operands operands;
    for (ValueId v : node.operands) {
      operands.push_back(v == kNoValue ? kNoValue : mapped_[v]);
    }
    std::vector<Type> types;
    for (int32_t i = 0; i < node.num_results; ++i) {
      types.push_back(trace_.type(node.result(i)));
    }
    ValueId first = body_.add_node(*node.op, std::move(operands), node.attrs, types);
    for (int32_t i = 0; i < node.num_results; ++i) {
      mapped_[node.result(i)] = first + i;
    }
  }

  const Graph& trace_;
  const std::vector<bool>& constants_; // by value
  Composite& composite_;
  Graph body_;
  std::span<const ValueId> inputs_;
  std::map<ValueId, int64_t> numbers_; // bits of the numbers that become constants
  std::vector<ValueId> mapped_; // by value of the trace
  std::vector<bool> inside_; // by value: it depends on an input
  std::vector<bool> taken_; // by node
};

class Outlining : private GraphCopy {
 public:
  Outlining(const Graph& trace, std::vector<Composite> composites) : GraphCopy(trace), composites_(std::move(composites)) {}

  Graph run() {
    composite_of_.assign(from_.nodes.size(), nullptr);
    const std::vector<bool> constants = find_constants(from_);
    for (Composite& composite : composites_) {
      if (Part(from_, constants, composite).take()) {
        for (size_t output : composite.outputs) {
          composite_of_[output] = &composite;
        }
      }
    }
    find_live();
    add_inputs();
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      if (const Composite* composite = composite_of_[i]) {
        add(*composite, i);
      } else if (live_[i]) {
        copy(from_.nodes[i]);
      }
    }
    return take_graph();
  }

 private:
  void find_live() {
    live_.assign(from_.nodes.size(), false);
    auto mark = [this](ValueId v) {
      if (v != kNoValue && from_.find_producer(v)) {
        live_[from_.values[v].index] = true;
      }
    };
    std::for_each(from_.outputs.begin(), from_.outputs.end(), mark);
    for (size_t i = from_.nodes.size(); i-- > 0;) {
      live_[i] = live_[i] || (from_.nodes[i].op->traits & kCollective);
      if (live_[i]) {
        const Operands& operands = composite_of_[i] ? composite_of_[i]->operands : from_.nodes[i].operands;
        std::for_each(operands.begin(), operands.end(), mark);
      }
    }
  }

  void add(const Composite& composite, size_t node) {
    static const Op& op = get_op("xla::composite");
    bool is_live = std::any_of(composite.outputs.begin(), composite.outputs.end(), [this](size_t output) { return live_[output]; });
    if (node != composite.at || !is_live) {
      return;
    }
    const Node& mark = from_.nodes[node];
    Operands operands;
    for (ValueId v : composite.operands) {
      operands.push_back(get_mapped(v));
    }
    std::vector<Type> types;
    for (size_t output : composite.outputs) {
      types.push_back(from_.type(from_.nodes[output].result()));
    }
    Attrs attrs{composite.body, mark.attrs[kMarkName], mark.attrs[kMarkAttributes]};
    ValueId first = graph_.add_node(op, std::move(operands), std::move(attrs), types, mark.location);
    for (size_t i = 0; i < composite.outputs.size(); ++i) {
      mapped_[from_.nodes[composite.outputs[i]].result()] = first + static_cast<ValueId>(i);
    }
  }

  std::vector<Composite> composites_;
  std::vector<const Composite*> composite_of_; // by node: whose output it marks, if that became a node
  std::vector<bool> live_; // by node
};

} // namespace

std::optional<Graph> outline(const Graph& trace) {
  std::vector<Composite> composites = find_composites(trace);
  return composites.empty() ? std::nullopt : std::make_optional(Outlining(trace, std::move(composites)).run());
}

} // namespace torch_xla
