// Passes: the text cases of tests/ir, and properties that hold for every graph.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "ir/builder.h"
#include "passes/compose.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

// ---- Text in, text out ----

struct Case {
  std::string pass;
  std::string title;
  std::string input;
  std::string expected;
};

// A file has cases of the form: "=== pass: title", graph, "---", graph.
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
  if (name == "pipeline") {
    return run_passes(input);
  }
  static const std::map<std::string, void (*)(Graph&)> passes{{"simplify", simplify}, {"cse", cse}, {"dce", eliminate_dead_code}};
  Graph graph = input;
  passes.at(name)(graph);
  return graph;
}

TEST(PassTextTest, AllCases) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/ir")) {
    for (const Case& c : read_cases(entry.path())) {
      SCOPED_TRACE(c.title);
      Graph input = parse_graph(c.input);
      verify_graph(input);
      Graph output = run_named_pass(c.pass, input);
      verify_graph(output);
      EXPECT_EQ(print_graph(output), print_graph(parse_graph(c.expected)));
      ++count;
    }
  }
  EXPECT_GE(count, 20u) << "run from the root of the repository";
}

// ---- Views ----

// For each element of the result, the element of the operand's memory.
std::vector<int64_t> addresses(const ViewGeometry& view) {
  std::vector<int64_t> list{view.offset};
  for (size_t i = 0; i < view.dims.size(); ++i) {
    std::vector<int64_t> longer;
    for (int64_t address : list) {
      for (int64_t k = 0; k < view.dims[i]; ++k) {
        longer.push_back(address + k * view.strides[i]);
      }
    }
    list = std::move(longer);
  }
  return list;
}

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

class RandomViews {
 public:
  explicit RandomViews(unsigned seed) : random_(seed) {}

  int64_t draw(int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random_);
  }
  Dims draw_dims() {
    Dims dims;
    for (int64_t n = draw(0, 3); n > 0; --n) {
      dims.push_back(draw(1, 4));
    }
    return dims;
  }
  // Dense strides in some order of the dims.
  Dims draw_dense_strides(const Dims& dims) {
    std::vector<size_t> order(dims.size());
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    std::shuffle(order.begin(), order.end(), random_);
    Dims strides(dims.size(), 1);
    int64_t step = 1;
    for (size_t i : order) {
      strides[i] = step;
      step *= dims[i];
    }
    return strides;
  }
  // Any view that stays inside.
  ViewGeometry draw_view(const Dims& base_dims) {
    ViewGeometry view{base_dims, draw_dense_strides(base_dims), draw_dims(), Dims(), 0};
    int64_t room = num_elements(base_dims) - 1;
    view.offset = draw(0, 1) ? draw(0, room) : 0;
    room -= view.offset;
    for (int64_t d : view.dims) {
      int64_t stride = draw(0, d > 1 ? room / (d - 1) : 12);
      view.strides.push_back(stride);
      room -= stride * (d - 1);
    }
    return view;
  }
  // The memory's order in other dims, or with the dims permuted.
  ViewGeometry draw_reshape(const Dims& base_dims) {
    ViewGeometry view{base_dims, draw_dense_strides(base_dims), base_dims, Dims(), 0};
    if (draw(0, 1)) {
      view.dims = {num_elements(base_dims)};
    }
    view.strides = draw_dense_strides(view.dims);
    return view;
  }
  ViewGeometry draw_either(const Dims& base_dims) {
    return draw(0, 2) ? draw_reshape(base_dims) : draw_view(base_dims);
  }

 private:
  std::mt19937 random_;
};

TEST(ComposeTest, ComposedViewsAddressTheSameElements) {
  RandomViews views(1);
  int composed = 0;
  for (int i = 0; i < 20000; ++i) {
    ViewGeometry inner = views.draw_either(views.draw_dims());
    ViewGeometry outer = views.draw_either(inner.dims);
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
  auto start = std::chrono::steady_clock::now();
  graph = lower(graph);
  simplify(graph);
  cse(graph);
  eliminate_dead_code(graph);
  double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  RecordProperty("ms", std::to_string(ms));
  EXPECT_LT(ms, 2000); // a bound against quadratic scans; about 10 ms on an idle machine
  EXPECT_EQ(graph.nodes.size(), 8001u);
}

} // namespace
} // namespace torch_xla
