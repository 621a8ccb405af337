// Reader of the text form of graphs.
#include <bit>

#include "core/errors.h"
#include "ir/computation.h"
#include "ir/cursor.h"
#include "ir/graph.h"

namespace torch_xla {
namespace {

Attrs parse_attrs(Cursor& in, FindOp find_op) {
  Attrs attrs;
  if (!in.accept('{') || in.accept('}')) {
    return attrs;
  }
  do {
    attrs.push_back(parse_attr(in, find_op));
  } while (in.accept(','));
  in.expect('}');
  return attrs;
}

class GraphReader {
 public:
  GraphReader(Cursor& in, FindOp find_op) : in_(in), find_op_(find_op), max_id_(in.size()) {}

  Graph read() {
    read_header();
    while (!in_.accept_word("return")) {
      read_node();
    }
    if (in_.peek() == '%') {
      do {
        read_output();
      } while (in_.accept(','));
    }
    in_.expect('}');
    check_values();
    return std::move(graph_);
  }

 private:
  ValueId read_id() {
    in_.expect('%');
    return parse_id(in_.word());
  }
  void read_output() {
    graph_.outputs.push_back(read_id());
    if (in_.peek() == '{') {
      graph_.output_strides.resize(graph_.outputs.size() - 1);
      graph_.output_strides.push_back(parse_dims(in_, '{', '}'));
    } else if (!graph_.output_strides.empty()) {
      graph_.output_strides.emplace_back();
    }
  }
  // The id and the colon: "%3: ".
  ValueId read_new_id() {
    in_.expect('%');
    std::string word = in_.word(); // with the colon, which is a letter of names
    if (word.empty() || word.back() != ':') {
      in_.fail("expected a value's number and ':'");
    }
    word.pop_back();
    return parse_id(word);
  }
  ValueId parse_id(const std::string& word) {
    int64_t id = parse_int(in_, word);
    if (id < 0 || id > max_id_) {
      in_.fail("a value's number is out of range");
    }
    return static_cast<ValueId>(id);
  }
  void define(ValueId id, Type type, ValueKind kind, size_t index) {
    auto at = static_cast<size_t>(id);
    if (at >= graph_.values.size()) {
      graph_.values.resize(at + 1);
      defined_.resize(at + 1);
    }
    if (defined_[at]) {
      in_.fail(str("%", id, " is defined twice"));
    }
    defined_[at] = true;
    graph_.values[at] = {std::move(type), kind, static_cast<int32_t>(index)};
  }
  void read_header() {
    in_.expect_word("graph");
    in_.expect('(');
    if (!in_.accept(')')) {
      do {
        read_input();
      } while (in_.accept(','));
      in_.expect(')');
    }
    in_.expect('{');
  }
  void read_input() {
    ValueId id = read_new_id();
    DType dtype = parse_dtype(in_);
    if (in_.accept_word("scalar")) {
      define(id, {dtype, {}}, ValueKind::kScalar, graph_.scalars.size());
      graph_.scalars.push_back(id);
      read_fixed(dtype);
      return;
    }
    Dims dims = parse_dims(in_, '[', ']');
    Dims strides = in_.peek() == '{' ? parse_dims(in_, '{', '}') : Dims();
    define(id, {dtype, std::move(dims)}, ValueKind::kParameter, graph_.parameters.size());
    graph_.parameters.push_back(id);
    graph_.parameter_strides.push_back(std::move(strides));
    graph_.parameter_shardings.emplace_back();
  }
  // The value of a scalar that is the same in each run: " = 0x1p-1".
  void read_fixed(DType dtype) {
    if (!in_.accept('=')) {
      if (!graph_.fixed_scalars.empty()) {
        graph_.fixed_scalars.emplace_back();
      }
      return;
    }
    const Attr value = parse_attr(in_, find_op_);
    const auto* number = std::get_if<double>(&value);
    const auto* whole = std::get_if<int64_t>(&value);
    if ((dtype == DType::F64 && !number) || (dtype != DType::F64 && !whole)) {
      in_.fail(str("expected a number of type ", dtype_name(dtype)));
    }
    graph_.fixed_scalars.resize(graph_.scalars.size() - 1);
    graph_.fixed_scalars.emplace_back(number ? std::bit_cast<uint64_t>(*number) : static_cast<uint64_t>(*whole));
  }
  void read_results(Node& node) {
    do {
      ValueId id = read_new_id();
      if (node.num_results == 0) {
        node.first_result = id;
      } else if (id != node.result(node.num_results)) {
        in_.fail("the results of a node are numbered in a row");
      }
      DType dtype = parse_dtype(in_);
      Dims dims = parse_dims(in_, '[', ']');
      define(id, {dtype, std::move(dims)}, ValueKind::kResult, graph_.nodes.size());
      ++node.num_results;
    } while (in_.accept(','));
  }
  void read_operands(Node& node) {
    in_.expect('(');
    if (in_.accept(')')) {
      return;
    }
    do {
      node.operands.push_back(in_.accept_word("none") ? kNoValue : read_id());
    } while (in_.accept(','));
    in_.expect(')');
  }
  void read_node() {
    Node node;
    node.num_results = 0;
    read_results(node);
    in_.expect('=');
    std::string name = in_.word();
    node.op = find_op_(name);
    if (!node.op) {
      in_.fail("no operation has the name '" + name + "'");
    }
    read_operands(node);
    node.attrs = parse_attrs(in_, find_op_);
    graph_.nodes.push_back(std::move(node));
  }
  void check_defined(ValueId v) {
    if (v != kNoValue && (static_cast<size_t>(v) >= defined_.size() || !defined_[v])) {
      in_.fail(str("%", v, " is not defined"));
    }
  }
  void check_values() {
    for (size_t i = 0; i < defined_.size(); ++i) {
      check_defined(static_cast<ValueId>(i));
    }
    for (const Node& node : graph_.nodes) {
      for (ValueId v : node.operands) {
        check_defined(v);
      }
    }
    for (ValueId v : graph_.outputs) {
      check_defined(v);
    }
  }

  Cursor& in_;
  FindOp find_op_;
  int64_t max_id_; // each value takes some characters of the text
  Graph graph_;
  std::vector<bool> defined_; // parallel to the graph's values
};

} // namespace

Attr parse_attr(Cursor& in, FindOp find_op) {
  return in.peek() == 'g' ? make_computation(GraphReader(in, find_op).read()) : parse_plain_attr(in);
}

Graph parse_graph(const std::string& text, FindOp find_op) {
  Cursor in(text);
  Graph graph = GraphReader(in, find_op).read();
  if (in.peek()) {
    in.fail("text after the graph");
  }
  return graph;
}

} // namespace torch_xla
