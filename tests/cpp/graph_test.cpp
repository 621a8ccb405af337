// Graphs: building, text form, verifier.
#include <gtest/gtest.h>

#include <cmath>

#include "core/errors.h"
#include "ir/builder.h"
#include "ir/computation.h"
#include "ops/registry.h"

namespace torch_xla {
namespace {

// All that the text form can hold.
Graph make_sample() {
  Graph g;
  Builder b(g);
  ValueId x = g.add_parameter({DType::F32, {64, 10}}, {1, 64});
  ValueId s = g.add_scalar(DType::F64);
  ValueId y = b.binary(Prim::kMul, x, b.convert(s, DType::F32));
  ValueId late = g.add_parameter({DType::BF16, {}});
  ValueId z = b.binary(Prim::kAdd, y, b.broadcast(b.convert(late, DType::F32), {64, 10}));
  z = b.permute(b.reduce(Prim::kReduceMax, z, {1}), {1, 0});
  g.outputs = {z, b.constant(0.1, DType::F64), b.constant(-INFINITY, DType::F32), s};
  return g;
}

// What no text may do: read, hang or crash.
void expect_refused(const std::string& text, const std::string& place) {
  try {
    parse_graph(text, find_op);
    FAIL() << "accepted: " << text;
  } catch (const UserError& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Value);
    EXPECT_NE(std::string(e.what()).find(place), std::string::npos) << e.what();
  }
}

void expect_broken(const Graph& g, const std::string& what) {
  try {
    verify_graph(g);
    FAIL() << print_graph(g);
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
  }
}

TEST(TextTest, ReadsBackWhatItPrints) {
  Graph g = make_sample();
  verify_graph(g);
  std::string text = print_graph(g);
  Graph back = parse_graph(text, find_op);
  EXPECT_EQ(print_graph(back), text);
  EXPECT_EQ(back.parameter_strides[0], (Dims{1, 64}));
  EXPECT_EQ(back.values.size(), g.values.size());
  verify_graph(back);
}

TEST(TextTest, ReadsBackComputations) {
  std::string text =
      "graph(%0: f32[2], %1: f32[3,2]) {\n"
      "  %2: f32[2], %3: f32[3,2] = xla::loop(%0, %1) {graph(%0: f32[2], %1: f32[2]) {\n"
      "  %2: f32[2] = aten::mul.Tensor(%0, %1)\n"
      "  return %2, %0\n"
      "}, 1, 1, 3, false}\n"
      "  return %2\n"
      "}\n";
  Graph graph = parse_graph(text, find_op);
  verify_graph(graph);
  EXPECT_EQ(print_graph(graph), text);
  EXPECT_EQ(body_of(graph.nodes[0].attrs[kLoopBody]).hash, body_of(parse_graph(text, find_op).nodes[0].attrs[kLoopBody]).hash);
  for (size_t n = 0; n + 2 < text.size(); ++n) {
    EXPECT_THROW(parse_graph(text.substr(0, n), find_op), UserError) << n;
  }
  graph.nodes[0].attrs[kLoopTrips] = int64_t{4};
  expect_broken(graph, "another number of turns than f32[3,2]");
}

TEST(TextTest, Prints) {
  Graph g;
  Builder b(g);
  ValueId x = g.add_parameter({DType::F32, {2, 3}}, {1, 2});
  ValueId s = g.add_scalar(DType::F64);
  g.outputs = {b.binary(Prim::kAdd, x, b.convert(s, DType::F32))};
  EXPECT_EQ(
      print_graph(g),
      "graph(%0: f32[2,3]{1,2}, %1: f64 scalar) {\n"
      "  %2: f32[] = convert(%1)\n"
      "  %3: f32[2,3] = add(%0, %2)\n"
      "  return %3\n"
      "}\n");
}

TEST(TextTest, KeepsEachKindOfAttribute) {
  Graph g;
  ValueId x = g.add_parameter({DType::F32, {}});
  Attrs attrs{std::monostate(), true, int64_t{INT64_MIN}, 0.1, -0.0, Dims{}, Dims{1, -2}};
  attrs.insert(attrs.end(), {std::vector<double>{}, std::vector<double>{1.5, INFINITY}, std::vector<bool>{}, std::vector<bool>{true}});
  attrs.push_back(std::string("a\"\\\n// b"));
  Type type{DType::F32, {}};
  g.outputs = {g.add_node(kViewOp, {x, kNoValue}, attrs, std::span(&type, 1))};
  Graph back = parse_graph(print_graph(g), find_op);
  EXPECT_EQ(back.nodes[0].attrs, attrs);
  EXPECT_TRUE(std::signbit(std::get<double>(back.nodes[0].attrs[4])));
  EXPECT_EQ(back.nodes[0].operands, g.nodes[0].operands);
}

TEST(TextTest, RefusesWithLineAndColumn) {
  expect_refused("", "line 1, column 1: expected 'graph'");
  expect_refused("graph() {\n  %0: f32[] = nothing()\n", "line 2, column 22: no operation has the name 'nothing'");
  expect_refused("graph() {\n  %0: f33[] = add()\n", "'f33' is no element type");
  expect_refused("graph(%0: f32[]) {\n  %1: f32[] = abs(%9)\n  return %1\n}\n", "%9 is not defined");
  expect_refused("graph(%0: f32[], %0: f32[]) {\n", "%0 is defined twice");
  expect_refused("graph(%999999999999: f32[]) {\n", "out of range");
  expect_refused("graph(%0: f32[]) {\n  return %0\n} x", "text after the graph");
  expect_refused("graph(%0: f32[]) {\n  %1: f32[] = abs(%0) {\"a", "ends inside a string");
}

TEST(TextTest, RefusesEachCutText) {
  std::string text = print_graph(make_sample());
  text.erase(text.find_last_not_of('\n') + 1);
  for (size_t n = 0; n < text.size(); ++n) {
    EXPECT_THROW(parse_graph(text.substr(0, n), find_op), UserError) << n;
  }
}

TEST(VerifyTest, FindsBrokenRules) {
  std::string head = "graph(%0: f32[2,3], %1: i32[3]) {\n";
  auto read = [&](const std::string& nodes) { return parse_graph(head + nodes + "  return %2\n}\n", find_op); };
  expect_broken(read("  %2: f32[2,3] = abs(%3)\n  %3: f32[2,3] = abs(%0)\n"), "operand %3 is used before its definition");
  expect_broken(read("  %2: f32[2,3] = add(%0, %1)\n"), "operands differ in type");
  expect_broken(read("  %2: f32[3,3] = abs(%0)\n"), "result is f32[3,3], not f32[2,3]");
  expect_broken(read("  %2: pred[2,3] = is_nan(%0, %0)\n"), "wrong number of operands");
  expect_broken(read("  %2: f32[2,1] = reduce_sum(%0) {[2]}\n"), "dim 2 is out of range");
  expect_broken(read("  %2: f32[2,4] = convert(%0)\n"), "dimension 1");
  expect_broken(read("  %2: f32[6] = view(%0) {[3, 1], [1], 1}\n"), "the view leaves its operand");
  expect_broken(read("  %2: f32[6] = view(%0) {[1], [1], 0}\n"), "one base stride for each dim");
  expect_broken(read("  %2: f32[] = constant() {1}\n"), "its type's kind of attribute");
}

TEST(BuilderTest, InfersTypes) {
  Graph g;
  Builder b(g);
  ValueId x = g.add_parameter({DType::F32, {2, 1}});
  ValueId y = g.add_parameter({DType::F32, {3}});
  EXPECT_EQ(g.type(b.binary(Prim::kLt, x, y)), (Type{DType::Bool, {2, 3}}));
  EXPECT_EQ(g.type(b.unary(Prim::kIsNan, y)), (Type{DType::Bool, {3}}));
  EXPECT_EQ(g.type(b.reduce(Prim::kReduceSum, x, {0})), (Type{DType::F32, {1, 1}}));
  EXPECT_EQ(b.broadcast(y, {3}), y);
  EXPECT_EQ(b.convert(y, DType::F32), y);
  EXPECT_EQ(b.reshape(y, {3}), y);
  ValueId z = g.add_parameter({DType::F32, {4}});
  EXPECT_THROW(b.binary(Prim::kAdd, y, z), UserError);
  verify_graph(g);
}

TEST(BuilderTest, ConstantsHaveTheirTypesValue) {
  Graph g;
  Builder b(g);
  auto value = [&](ValueId v) { return g.find_producer(v)->attrs[0]; };
  EXPECT_EQ(value(b.constant(0.1, DType::F32)), Attr(static_cast<double>(0.1f)));
  EXPECT_EQ(value(b.constant(3, DType::I64)), Attr(int64_t{3}));
  EXPECT_EQ(value(b.constant(0.5, DType::Bool)), Attr(int64_t{1}));
  EXPECT_EQ(value(b.constant_int(-1, DType::U8)), Attr(int64_t{255}));
  EXPECT_EQ(value(b.constant_int(2, DType::F64)), Attr(2.0));
}

TEST(RegistryTest, FindsPrimitivesAndViews) {
  EXPECT_EQ(find_op("add"), &prim_op(Prim::kAdd));
  EXPECT_EQ(find_op("view"), &kViewOp);
  EXPECT_EQ(find_op("load"), nullptr);
  EXPECT_EQ(find_op("aten::no_such_op"), nullptr);
  EXPECT_THROW(prim_op(Prim::kStore), InternalError);
}

} // namespace
} // namespace torch_xla
