// The writer of whole graphs: arguments, one node after the other, results.
#include "stablehlo/writer.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/errors.h"
#include "ops/registry.h"
#include "ops/tables.h"
#include "passes/passes.h"
#include "stablehlo/call.h"
#include "stablehlo/hlo_text/hlo_text.h"
#include "stablehlo/manual.h"
#include "stablehlo/primitive.h"
#include "stablehlo/random.h"
#include "stablehlo/view.h"

namespace torch_xla {
namespace stablehlo {
namespace {

using WriterMap = std::unordered_map<std::string_view, void (*)(Call& call)>;

WriterMap* make_writer_map() {
  const std::array tables{
      matmul_writers(),
      conv_writers(),
      pool_writers(),
      resize_writers(),
      index_writers(),
      scatter_writers(),
      order_writers(),
      join_writers(),
      grid_writers(),
      function_writers(),
      rnn_writers(),
      identity_writers(),
      control_writers(),
      composite_writers(),
      shard_writers(),
  };
  auto* map = new WriterMap;
  for (std::span<const Writer> table : tables) {
    for (const Writer& writer : table) {
      bool is_new = map->emplace(writer.row, writer.write).second;
      XLA_ASSERT(is_new && find_op(writer.row), "the StableHLO form of ", writer.row, " is given twice or has no row");
    }
  }
  return map;
}

const WriterMap& writers() {
  static const WriterMap* map = make_writer_map();
  return *map;
}

// Random bits that are drawn once for all lanes of a node family.
struct Draw {
  ValueId seed;
  ValueId offset;
  Dims dims;
  std::array<Hlo, 4> words;
};

// The nodes of a lowered graph.
class GraphWriter {
 public:
  // `arguments`: the parameters, then the scalars.
  GraphWriter(Text& text, const Graph& graph, const Hlos& arguments)
      : text_(text), graph_(graph), values_(graph.values.size()), read_(find_read(graph)) {
    XLA_ASSERT(arguments.size() == graph.parameters.size() + graph.scalars.size(), "arguments of a graph");
    for (size_t i = 0; i < arguments.size(); ++i) {
      size_t n = graph.parameters.size();
      values_[i < n ? graph.parameters[i] : graph.scalars[i - n]] = arguments[i];
    }
  }

  Hlos run(const LocationText& location = {}) {
    if (text_.has_manual_regions() && std::any_of(graph_.nodes.begin(), graph_.nodes.end(), is_edge_of_region)) {
      for (const Part& part : split_by_regions(graph_, text_.num_partitions())) {
        part.is_manual ? write_region(part, location) : write_nodes(part.nodes, location);
      }
    } else {
      for (const Node& node : graph_.nodes) {
        write_located(node, location);
      }
    }
    Hlos results;
    for (ValueId v : graph_.outputs) {
      results.push_back(values_[v]);
    }
    return results;
  }

 private:
  static std::vector<bool> find_read(const Graph& graph) {
    std::vector<bool> read(graph.values.size(), false);
    for (const Node& node : graph.nodes) {
      for (ValueId v : node.operands) {
        if (v != kNoValue) {
          read[v] = true;
        }
      }
    }
    for (ValueId v : graph.outputs) {
      read[v] = true;
    }
    return read;
  }

  // "file.py:12 in forward" without the function; other names whole.
  static std::string source_line(const std::string& text) {
    std::string line = text.substr(0, text.rfind(" in "));
    return file_and_line(line).second.empty() ? text : line;
  }

  static bool is_edge_of_region(const Node& node) {
    return find_taken(node) || find_joined(node);
  }

  void write_located(const Node& node, const LocationText& location) {
    if (location) {
      text_.set_location(node.location >= 0 ? source_line(location(node.location)) : "");
    }
    write_node(node);
  }

  void write_nodes(const std::vector<const Node*>& nodes, const LocationText& location) {
    for (const Node* node : nodes) {
      write_located(*node, location);
    }
  }

  // Values from outside are arguments of the region, as the devices see them.
  void write_region(const Part& part, const LocationText& location) {
    Text::ManualRegion region;
    Hlos operands;
    std::vector<Type> types;
    for (const Part::Port& port : part.inputs) {
      operands.push_back(values_[port.outside]);
      region.body.arguments.push_back(graph_.type(port.inside));
      region.inputs.push_back(port.sharding);
    }
    for (const Part::Port& port : part.outputs) {
      types.push_back(graph_.type(port.outside));
      region.outputs.push_back(port.sharding);
    }
    const Hlos outside = values_;
    std::vector<Draw> draws = std::exchange(draws_, {});
    region.body.body = [&](const Hlos& arguments) {
      for (size_t i = 0; i < arguments.size(); ++i) {
        values_[part.inputs[i].inside] = arguments[i];
      }
      for (const Node* node : part.nodes) {
        if (!is_edge_of_region(*node)) {
          write_located(*node, location);
        }
      }
      Hlos results;
      for (const Part::Port& port : part.outputs) {
        results.push_back(values_[port.inside]);
      }
      return results;
    };
    const Hlos results = text_.manual_computation(operands, region, types);
    values_ = outside;
    draws_ = std::move(draws);
    for (size_t i = 0; i < results.size(); ++i) {
      values_[part.outputs[i].outside] = results[i];
    }
  }

  Hlos read_operands(const Node& node) const {
    Hlos operands;
    for (ValueId v : node.operands) {
      operands.push_back(v == kNoValue ? Hlo() : values_[v]);
    }
    return operands;
  }

  void write_node(const Node& node) {
    Hlos operands = read_operands(node);
    switch (node.op->kind) {
      case OpKind::kPrim:
        values_[node.result()] =
            node.op->prim == Prim::kRandomBits ? draw(node, operands) : write_primitive(text_, node, operands, graph_.type(node.result()));
        return;
      case OpKind::kView:
        values_[node.result()] = write_view(operands[0], view_geometry(graph_, node));
        return;
      case OpKind::kViewUpdate:
        values_[node.result()] = write_view_update(operands[0], operands[1], view_geometry(graph_, node));
        return;
      default:
        write_library(node, std::move(operands));
    }
  }

  Hlo draw(const Node& node, const Hlos& operands) {
    const Dims& dims = graph_.type(node.result()).dims;
    auto lane = static_cast<size_t>(std::get<int64_t>(node.attrs[0]));
    for (const Draw& d : draws_) {
      if (d.seed == node.operands[0] && d.offset == node.operands[1] && d.dims == dims) {
        return d.words[lane];
      }
    }
    draws_.push_back({node.operands[0], node.operands[1], dims, write_random_bits(operands[0], operands[1], dims)});
    return draws_.back().words[lane];
  }

  void write_library(const Node& node, Hlos operands) {
    auto found = writers().find(node.op->name);
    XLA_CHECK_KIND(NotImplemented, found != writers().end(), node.op->name, " has no StableHLO form: this engine cannot run it");
    Call call(text_, graph_, node, std::move(operands), read_);
    found->second(call);
    for (int32_t i = 0; i < node.num_results; ++i) {
      values_[node.result(i)] = call.results()[static_cast<size_t>(i)];
    }
  }

  Text& text_;
  const Graph& graph_;
  Hlos values_; // by ValueId
  std::vector<bool> read_; // by ValueId: whether a node or an output reads it
  std::vector<Draw> draws_;
};

// The attributes of an argument of @main.
std::string alias_text(const Graph& graph, const StableHloOptions& options, size_t i) {
  if (i >= options.aliases.size() || options.aliases[i] < 0) {
    return "";
  }
  int32_t alias = options.aliases[i];
  ValueId parameter = graph.parameters[i];
  ValueId output = graph.outputs.at(static_cast<size_t>(alias));
  bool fits = graph.type(parameter) == graph.type(output) && graph.parameter_strides[i].empty();
  XLA_ASSERT(fits, "output %", output, " cannot take the memory of parameter %", parameter);
  return str("tf.aliasing_output = ", alias, " : i32");
}

// Of a value in these tiles, with their padding.
Dims padded_dims(const Dims& dims, const ShardingRef& sharding) {
  Dims padded = sharding ? sharding->tile_dims(dims) : dims;
  for (size_t i = 0; sharding && i < dims.size(); ++i) {
    padded[i] *= sharding->tiles[i];
  }
  return padded;
}

// Constraints keep tiles with padding at the edge of the program: XLA's partitioner fails on some operations in such tiles.
Hlo without_padding(Hlo x, const Dims& dims) {
  return slice(x, Dims(dims.size(), 0), dims, Dims(dims.size(), 1));
}

Hlo with_padding(Hlo x, const ShardingRef& sharding) {
  const Dims none(x.dims().size(), 0);
  Dims high = padded_dims(x.dims(), sharding);
  for (size_t i = 0; i < high.size(); ++i) {
    high[i] -= x.dim(i);
  }
  return high == none ? x : pad(x.text().constrain(x, *sharding), number<0>(x.text(), x.dtype()), none, high, none);
}

Hlo add_parameter(Text& text, const Type& type, const Dims& strides, const ShardingRef& sharding) {
  if (strides.empty()) {
    const Hlo given = text.argument({type.dtype, padded_dims(type.dims, sharding)}, sharding);
    return given.dims() == type.dims ? given : text.constrain(without_padding(given, type.dims), *sharding);
  }
  return from_memory_order(text.argument({type.dtype, memory_order_dims(type.dims, strides)}), type.dims, strides);
}

std::string write_module(Text& text, const Graph& graph, const StableHloOptions& options) {
  Hlos arguments;
  std::vector<std::string> attributes;
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    arguments.push_back(add_parameter(text, graph.type(graph.parameters[i]), graph.parameter_strides[i], graph.parameter_shardings[i]));
    attributes.push_back(alias_text(graph, options, i));
  }
  for (ValueId v : graph.scalars) {
    arguments.push_back(text.argument(graph.type(v)));
    attributes.emplace_back();
  }
  Hlos results = GraphWriter(text, graph, arguments).run(options.location);
  text.set_location("");
  for (size_t i = 0; i < options.output_shardings.size(); ++i) {
    results[i] = with_padding(results[i], options.output_shardings[i].value_or(nullptr));
  }
  return text.finish(results, attributes, options.output_shardings);
}

} // namespace

Hlos write_computation(Text& text, const Graph& body, const Hlos& arguments) {
  return GraphWriter(text, run_passes_on_body(body, /*device=*/0, {.keeps = has_stablehlo_form, .outlines = outline}), arguments).run();
}

} // namespace stablehlo

bool has_stablehlo_form(const Op& op) {
  return stablehlo::writers().count(op.name) > 0;
}

EngineRules stablehlo_rules(std::string_view hardware) {
  constexpr int64_t kMostScoresOfTpu = 16 << 20; // 64 MB of float32: half of the vector memory of a TPU v5e
  return {.keeps = has_stablehlo_form, .outlines = outline, .most_scores = hardware == "TPU" ? kMostScoresOfTpu : 0};
}

std::string write_stablehlo(const Graph& graph, const StableHloOptions& options) {
  stablehlo::Text text(options.products, options.convolutions, options.target, options.device_order);
  return stablehlo::write_module(text, graph, options);
}

std::string write_hlo(const Graph& graph, const StableHloOptions& options) {
  stablehlo::HloText text(options.products, options.convolutions, options.target, options.device_order);
  return stablehlo::write_module(text, graph, options);
}

} // namespace torch_xla
