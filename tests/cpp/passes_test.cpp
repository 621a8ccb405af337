// Passes: the text cases of tests/ir, and properties that hold for every graph.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "cpu_time.h"
#include "ir/builder.h"
#include "ops/registry.h"
#include "ops/tables.h"
#include "passes/passes.h"
#include "random_views.h"

namespace torch_xla {
namespace {

using testing::addresses;
using testing::RandomViews;

// ---- Text in, text out ----

struct Case {
  std::string pass;
  std::string title;
  std::string input;
  std::string expected;
};

// A file opens with a line that says what it is for, and has cases of the form: "=== pass: title", graph, "---", graph.
std::vector<Case> read_cases(const std::filesystem::path& path) {
  std::vector<Case> cases;
  std::ifstream file(path);
  std::string* part = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("=== ", 0) == 0) {
      size_t colon = line.find(':');
      cases.push_back({line.substr(4, colon - 4), path.stem().string() + line.substr(colon), "", ""});
      part = &cases.back().input;
    } else if (line == "---" && part) {
      part = &cases.back().expected;
    } else if (part) {
      *part += line + "\n";
    }
  }
  return cases;
}

Graph run_named_pass(const std::string& name, const Graph& input) {
  if (name == "lower") {
    return lower(input);
  }
  if (name == "add_into_parts") {
    return add_into_parts(input).value_or(input);
  }
  if (name == "outline") {
    return outline(input).value_or(input);
  }
  if (name == "narrow_to_bf16") {
    return narrow(input, FloatStorage::kBf16, /*narrow_products=*/true);
  }
  if (name == "narrow_but_products") {
    return narrow(input, FloatStorage::kHalf, /*narrow_products=*/false);
  }
  if (name == "widen") {
    return widen(input, [](const Graph&, const Node& call) { return (call.op->traits & (kSumsProducts | kHasProducts)) != 0; });
  }
  if (name == "integer_convolutions") {
    return integer_convolutions(input).value_or(input);
  }
  if (name == "integer_products") {
    auto reads = [](DType dtype, int64_t rows, int64_t /*inner*/) { return dtype == DType::I32 || rows <= 8; };
    return integer_products(input, reads).value_or(input);
  }
  if (name == "fuse_convolutions") {
    auto fuses = [](const Graph&, const Node& node) {
      return is_convolution(*node.op) ? ConvolutionFusion::kSum : ConvolutionFusion::kNone;
    };
    return fuse_convolutions(input, fuses).value_or(input);
  }
  if (name == "pipeline") {
    return run_passes(input, 0);
  }
  static const std::map<std::string, void (*)(Graph&)> passes{
      {"simplify", simplify}, {"share_heads", share_heads}, {"cse", cse}, {"eliminate_dead_code", eliminate_dead_code}};
  Graph graph = input;
  passes.at(name)(graph);
  return graph;
}

TEST(PassTextTest, AllCases) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/ir")) {
    for (const Case& c : read_cases(entry.path())) {
      SCOPED_TRACE(c.title);
      Graph input = parse_graph(c.input, find_op);
      verify_graph(input);
      Graph output = run_named_pass(c.pass, input);
      verify_graph(output);
      EXPECT_EQ(print_graph(output), print_graph(parse_graph(c.expected, find_op)));
      ++count;
    }
  }
  EXPECT_GE(count, 20u) << "run from the root of the repository";
}

// ---- Views ----

// The outer view's addresses, each taken as the number of an element of the inner view's result.
std::vector<int64_t> addresses_of_both(const ViewGeometry& inner, const ViewGeometry& outer) {
  std::map<int64_t, int64_t> memory;
  ViewGeometry numbering{inner.dims, outer.base_strides, inner.dims, outer.base_strides, 0};
  std::vector<int64_t> numbers = addresses(numbering);
  std::vector<int64_t> places = addresses(inner);
  for (size_t i = 0; i < numbers.size(); ++i) {
    memory[numbers[i]] = places[i];
  }
  std::vector<int64_t> list;
  for (int64_t number : addresses(outer)) {
    list.push_back(memory.at(number));
  }
  return list;
}

// The same view of a base whose elements lie twice as far apart.
ViewGeometry with_gaps(ViewGeometry view) {
  for (Dims* strides : {&view.base_strides, &view.strides}) {
    for (int64_t& stride : *strides) {
      stride *= 2;
    }
  }
  view.offset *= 2;
  return view;
}

TEST(ComposeTest, ComposedViewsAddressTheSameElements) {
  RandomViews views(1);
  int composed = 0;
  for (int i = 0; i < 20000; ++i) {
    ViewGeometry inner = views.draw_either(views.draw_dims());
    ViewGeometry outer = views.draw_either(inner.dims);
    outer = i % 4 == 0 ? with_gaps(outer) : outer;
    if (auto both = compose_views(inner, outer)) {
      ASSERT_EQ(addresses(*both), addresses_of_both(inner, outer)) << i;
      ++composed;
    }
  }
  EXPECT_GT(composed, 5000);
}

// ---- Size ----

// A chain of updates as optimizers record it, with something to find for each pass.
Graph make_large(int nodes) {
  Graph g;
  Builder b(g);
  ValueId x = g.add_parameter({DType::F32, {64, 64}});
  ValueId s = g.add_scalar(DType::F64);
  for (int i = 0; i < nodes / 5; ++i) {
    ValueId lr = b.convert(s, DType::F32);
    ValueId one = b.constant(1, DType::F32);
    ValueId scaled = b.binary(Prim::kMul, x, one);
    x = b.permute(b.binary(Prim::kAdd, scaled, lr), {1, 0});
  }
  g.outputs = {x};
  return g;
}

TEST(PassSpeedTest, TwentyThousandNodes) {
  Graph graph = make_large(20000);
  double start = cpu_ms();
  graph = lower(graph);
  simplify(graph);
  cse(graph);
  eliminate_dead_code(graph);
  double ms = cpu_ms() - start;
  RecordProperty("ms", std::to_string(ms));
  EXPECT_LT(ms, 2000); // a bound against quadratic scans; about 10 ms on an idle machine
  EXPECT_EQ(graph.nodes.size(), 8001u);
}

} // namespace
} // namespace torch_xla
