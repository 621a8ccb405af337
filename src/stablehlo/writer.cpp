// The writer of whole graphs: arguments, one node after the other, results.
#include "stablehlo/writer.h"

#include <array>
#include <string_view>
#include <unordered_map>

#include "core/errors.h"
#include "ops/registry.h"
#include "stablehlo/call.h"
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

class GraphWriter {
 public:
  GraphWriter(const Graph& graph, const StableHloOptions& options)
      : graph_(graph), options_(options), text_(options.products, options.convolutions), values_(graph.values.size()) {}

  std::string run() {
    add_arguments();
    for (const Node& node : graph_.nodes) {
      text_.set_location(options_.location && node.location >= 0 ? source_line(options_.location(node.location)) : "");
      write_node(node);
    }
    text_.set_location("");
    Hlos results;
    for (ValueId v : graph_.outputs) {
      results.push_back(values_[v]);
    }
    return text_.finish(results, argument_attributes_);
  }

 private:
  // "file.py:12 in forward" without the function.
  static std::string source_line(const std::string& text) {
    return text.substr(0, text.rfind(" in "));
  }

  void add_arguments() {
    for (size_t i = 0; i < graph_.parameters.size(); ++i) {
      ValueId v = graph_.parameters[i];
      add_parameter(v, graph_.parameter_strides[i]);
      argument_attributes_.push_back(alias_text(i));
    }
    for (ValueId v : graph_.scalars) {
      values_[v] = text_.argument(graph_.type(v));
      argument_attributes_.emplace_back();
    }
  }
  std::string alias_text(size_t i) const {
    if (i >= options_.aliases.size() || options_.aliases[i] < 0) {
      return "";
    }
    int32_t alias = options_.aliases[i];
    ValueId parameter = graph_.parameters[i];
    ValueId output = graph_.outputs.at(static_cast<size_t>(alias));
    bool fits = graph_.type(parameter) == graph_.type(output) && graph_.parameter_strides[i].empty();
    XLA_ASSERT(fits, "output %", output, " cannot take the memory of parameter %", parameter);
    return str(" {tf.aliasing_output = ", alias, " : i32}");
  }
  void add_parameter(ValueId v, const Dims& strides) {
    Type type = graph_.type(v);
    if (strides.empty()) {
      values_[v] = text_.argument(type);
      return;
    }
    Hlo argument = text_.argument({type.dtype, memory_order_dims(type.dims, strides)});
    values_[v] = from_memory_order(argument, type.dims, strides);
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
    Call call(text_, graph_, node, std::move(operands));
    found->second(call);
    for (int32_t i = 0; i < node.num_results; ++i) {
      values_[node.result(i)] = call.results()[static_cast<size_t>(i)];
    }
  }

  const Graph& graph_;
  const StableHloOptions& options_;
  Text text_;
  Hlos values_; // by ValueId
  std::vector<std::string> argument_attributes_;
  std::vector<Draw> draws_;
};

} // namespace
} // namespace stablehlo

bool has_stablehlo_form(const Op& op) {
  return stablehlo::writers().count(op.name) > 0;
}

std::string write_stablehlo(const Graph& graph, const StableHloOptions& options) {
  return stablehlo::GraphWriter(graph, options).run();
}

} // namespace torch_xla
