// The StableHLO writer: every row has a form, the texts of all cases are those that tests/rows expects, views are split rightly.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "core/hash.h"
#include "cpu_time.h"
#include "ops/registry.h"
#include "passes/passes.h"
#include "random_views.h"
#include "row_cases.h"
#include "stablehlo/view_plan.h"
#include "stablehlo/writer.h"

namespace torch_xla {
namespace {

using testing::RowCase;

std::string write(const Graph& trace) {
  return write_stablehlo(run_passes(trace, 0, {.keeps = has_stablehlo_form, .outlines = outline}));
}

// ---- Coverage ----

// Rows that no plugin can run, by name, but calls of ATen's kernels, which the recorder does not hand to plugins.
const std::set<std::string> kWithoutForm = {};

TEST(StableHlo, EveryRowHasAForm) {
  std::set<std::string> without;
  for (std::span<const Op> table : op_tables()) {
    for (const Op& op : table) {
      if (op.kind == OpKind::kLibrary && !is_call(op) && !op.expand && !has_stablehlo_form(op)) {
        without.insert(op.name);
      }
    }
  }
  EXPECT_EQ(without, kWithoutForm);
}

TEST(StableHlo, EveryRowHasACase) {
  std::set<std::string> names;
  for (const auto& file : testing::row_case_files()) {
    for (const RowCase& c : testing::read_row_cases(file)) {
      names.insert(c.trace.nodes.back().op->name);
    }
  }
  for (std::span<const Op> table : op_tables()) {
    for (const Op& op : table) {
      EXPECT_TRUE(is_call(op) || names.count(op.name)) << op.name << " has no case in tests/rows";
    }
  }
}

// ---- What the cases are written as ----

// The operations of a text in order, "add multiply x3 reduce"; of long ones the first and how many there are.
std::string form_of(const std::string& text) {
  constexpr size_t kShown = 16;
  std::istringstream lines(text);
  std::vector<std::pair<std::string, int>> runs;
  size_t count = 0;
  for (std::string line; std::getline(lines, line);) {
    size_t at = line.find("stablehlo.");
    size_t start = at == std::string::npos ? line.find("chlo.") : at + 10;
    if (start == std::string::npos || line.find("= ") == std::string::npos) {
      continue;
    }
    std::string name = line.substr(start, line.find_first_of(" \"", start) - start);
    bool repeats = !runs.empty() && runs.back().first == name;
    repeats ? void(++runs.back().second) : runs.push_back({name, 1});
    ++count;
  }
  std::string form;
  for (size_t i = 0; i < std::min(runs.size(), kShown); ++i) {
    form += " " + runs[i].first + (runs[i].second > 1 ? " x" + std::to_string(runs[i].second) : "");
  }
  return runs.size() > kShown ? form + " ... of " + std::to_string(count) : form;
}

// The body of the function, without the module around it: "  (%arg0: tensor<3x5xf32>) -> (tensor<3x5xf32>)", then its lines.
std::string body_of(const std::string& text) {
  std::istringstream lines(text);
  std::string body;
  for (std::string line; std::getline(lines, line);) {
    if (size_t name = line.find("@main"); name != std::string::npos) {
      body += "  " + line.substr(name + 5, line.size() - name - 7) + "\n";
    } else if (line.rfind("    ", 0) == 0) {
      body += line + "\n";
    }
  }
  return body;
}

// The names of a form's operations that `seen` lacks are added to it; false where there are none.
bool shows_an_operation(const std::string& form, std::set<std::string>& seen) {
  std::istringstream words(form);
  bool shows = false;
  for (std::string word; words >> word && word != "...";) {
    shows |= seen.insert(word).second;
  }
  return shows;
}

// What a family's expected file has of each case, by its line: the text's hash and form, and the text itself, at most kShownLines long,
// where it is the first of its writer or shows an operation for the first time.
class CaseTexts {
 public:
  // `operations` are those that the families before have shown.
  CaseTexts(const std::filesystem::path& cases, std::set<std::string>& operations) : operations_(operations) {
    for (const RowCase& c : testing::read_row_cases(cases)) {
      add(c);
    }
  }

  const std::map<std::string, std::string>& texts() const { // whole
    return texts_;
  }
  const std::map<std::string, std::string>& expected() const {
    return expected_;
  }
  std::string file() const {
    std::string file;
    for (const std::string& line : lines_) {
      file += expected_.at(line);
    }
    return file;
  }

  // The entries of a file, by the line of their case.
  static std::map<std::string, std::string> read(const std::filesystem::path& path) {
    std::map<std::string, std::string> entries;
    std::ifstream file(path);
    std::string name;
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("  ", 0) != 0) {
        name = line.substr(kHashDigits + 1, line.find(" ->") - kHashDigits - 1);
      }
      entries[name] += line + "\n";
    }
    return entries;
  }

 private:
  static constexpr size_t kHashDigits = 12;
  static constexpr int kShownLines = 24;

  void add(const RowCase& c) {
    std::string line = c.line.substr(0, c.line.find(" #"));
    std::string text = write(c.trace);
    std::string body = body_of(text);
    std::string form = form_of(text);
    Hash128 hash;
    hash.add_bytes(body.data(), body.size());
    std::string entry = hash.hex().substr(0, kHashDigits) + " " + line + " ->" + form + "\n";
    if (std::count(body.begin(), body.end(), '\n') <= kShownLines) {
      const Op* op = c.trace.nodes.back().op;
      bool is_first = has_stablehlo_form(*op) && writers_.insert(op).second;
      entry += shows_an_operation(form, operations_) || is_first ? body : "";
    }
    EXPECT_TRUE(texts_.emplace(line, body).second) << line << " stands twice";
    expected_[line] = entry;
    lines_.push_back(line);
  }

  std::vector<std::string> lines_;
  std::map<std::string, std::string> texts_, expected_;
  std::set<std::string>& operations_;
  std::set<const Op*> writers_;
};

// Each case of tests/rows/FAMILY.cases has an entry in FAMILY.stablehlo. XLA_UPDATE_EXPECTED=1 writes these files instead.
TEST(StableHlo, Texts) {
  std::set<std::string> operations;
  for (const auto& cases : testing::row_case_files()) {
    CaseTexts got(cases, operations);
    auto path = std::filesystem::path(cases).replace_extension(".stablehlo");
    if (std::getenv("XLA_UPDATE_EXPECTED")) {
      std::ofstream(path) << got.file();
    }
    auto want = CaseTexts::read(path);
    for (const auto& [line, entry] : got.expected()) {
      EXPECT_EQ(want[line], entry) << path << " has another text of " << line << ". The new text:\n"
                                   << got.texts().at(line) << "Where it is right, run this test with XLA_UPDATE_EXPECTED=1.";
    }
    EXPECT_EQ(want.size(), got.expected().size()) << path << " has cases that " << cases << " lacks";
  }
}

// ---- The same as HLO ----

// Names of values in a line of HLO: "%add.3".
std::vector<std::string> names_in(const std::string& line) {
  std::vector<std::string> names;
  for (size_t at = 0; (at = line.find('%', at)) != line.npos; ++at) {
    names.push_back(line.substr(at, line.find_first_of(" ,()", at) - at));
  }
  return names;
}

// Each computation takes only its own values and computations that stand before it, and has one root.
TEST(Hlo, EveryCaseIsClosed) {
  for (const auto& file : testing::row_case_files()) {
    for (const RowCase& c : testing::read_row_cases(file)) {
      std::istringstream lines(write_hlo(run_passes(c.trace, 0, {.keeps = has_stablehlo_form})));
      std::set<std::string> computations;
      std::set<std::string> known;
      int roots = 0;
      for (std::string line; std::getline(lines, line);) {
        std::vector<std::string> names = names_in(line);
        if (line.ends_with("{")) { // a computation begins
          computations.insert(names[0]);
          known = computations;
          roots = 0;
        } else if (line == "}") {
          EXPECT_EQ(roots, 1) << c.line;
        } else if (!names.empty()) {
          std::for_each(names.begin() + 1, names.end(), [&](const auto& name) {
            EXPECT_TRUE(known.count(name)) << c.line << "\n" << line;
          });
          known.insert(names[0]);
          roots += line.starts_with("  ROOT ");
        }
      }
    }
  }
}

std::string hlo_of(const char* line) {
  return write_hlo(run_passes(testing::CaseReader(line).run().trace, 0, {.keeps = has_stablehlo_form}));
}

TEST(Hlo, SourceLinesAndTypes) {
  Graph graph = parse_graph("graph(%0: f32[4,2], %1: f32[4,2]) {\n  %2: f32[4,2] = add(%0, %1)\n  return %2\n}\n", find_op);
  graph.nodes[0].location = 3;
  auto location = [](int32_t index) { return index == 3 ? std::string("a.py:12 in forward") : std::string(); };
  EXPECT_EQ(
      write_hlo(graph, {.location = location}),
      "HloModule program\n\n"
      "ENTRY %main (p0.1: f32[4,2]{1,0}, p1.1: f32[4,2]{1,0}) -> (f32[4,2]{1,0}) {\n"
      "  %p0.1 = f32[4,2]{1,0} parameter(0)\n"
      "  %p1.1 = f32[4,2]{1,0} parameter(1)\n"
      "  %add.1 = f32[4,2]{1,0} add(f32[4,2]{1,0} %p0.1, f32[4,2]{1,0} %p1.1), metadata={source_file=\"a.py\" "
      "source_line=12}\n"
      "  ROOT %tuple.1 = (f32[4,2]{1,0}) tuple(f32[4,2]{1,0} %add.1)\n"
      "}\n\n");
}

TEST(Hlo, Attributes) {
  auto expect = [](const char* line, std::initializer_list<const char*> parts) {
    std::string text = hlo_of(line);
    for (const char* part : parts) {
      EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
    }
  };
  expect("aten::mm(f32[4,6], f32[6,3])", {"lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={highest,highest}"});
  expect(
      "aten::convolution(f32[2,4,9,8], f32[6,4,3,2], none) {[2, 1], [1, 0], [1, 2], false, [0, 0], 1}",
      {"window={size=3x2 stride=2x1 pad=1_1x0_0 lhs_dilate=1x1 rhs_dilate=1x2}, dim_labels=bf01_oi01->bf01, feature_group_count=1"});
  expect("aten::bmm(f32[2,4,6], f32[2,6,3])", {"lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}"});
  expect("aten::mul.Tensor(ui8[5], ui8[5])", {"u8[5]{0} multiply(u8[5]{0} %"});
  expect("aten::embedding(bf16[7,4], i64[3]<7) {-1, false, false}", {"offset_dims={1}, collapsed_slice_dims={0}", "slice_sizes={1,4}"});
  expect("aten::gelu(f32[9]) {\"none\"}", {" erf(f32[9]{0} %", "constant(0.5)", "dimensions={}"});
  expect("aten::lgamma(f32[3])", {"custom-call(", "custom_call_target=\"chlo.lgamma\""});
}

// ---- The module ----

TEST(StableHlo, AliasesAndSourceLines) {
  Graph graph = parse_graph("graph(%0: f32[4], %1: f32[4]) {\n  %2: f32[4] = add(%0, %1)\n  return %2\n}\n", find_op);
  graph.nodes[0].location = 3;
  auto location = [](int32_t index) { return index == 3 ? std::string("a \"b\".py:12 in forward") : std::string(); };
  const int32_t aliases[] = {-1, 0};
  EXPECT_EQ(
      write_stablehlo(graph, {.aliases = aliases, .location = location}),
      "module @program {\n"
      "  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<4xf32>) {\n"
      "    %0 = stablehlo.add %arg0, %arg1 : tensor<4xf32> loc(#loc0)\n"
      "    \"func.return\"(%0) : (tensor<4xf32>) -> ()\n"
      "  }\n"
      "}\n"
      "#loc0 = loc(\"a \\\"b\\\".py\":12:0)\n");
}

TEST(StableHlo, PrecisionOfFloat32) {
  auto contains = [](const char* line, Precision::Level products, Precision::Level convolutions, const std::string& what) {
    Graph graph = run_passes(testing::CaseReader(line).run().trace, 0, {.keeps = has_stablehlo_form});
    std::string text = write_stablehlo(graph, {.products = products, .convolutions = convolutions});
    return text.find(what) != text.npos;
  };
  const char* conv = "aten::convolution(f32[2,4,7,6], f32[6,4,3,2], f32[6]) {[2, 1], [1, 0], [1, 2], false, [0, 0], 1}";
  const char* product = "aten::mm(f32[4,6], f32[6,3])";
  EXPECT_TRUE(contains(conv, Precision::kHighest, Precision::kHigh, "precision HIGH>, #stablehlo<precision HIGH>]"));
  EXPECT_TRUE(contains(product, Precision::kHigh, Precision::kHighest, "precision HIGH>, #stablehlo<precision HIGH>]"));
  EXPECT_TRUE(contains(product, Precision::kHighest, Precision::kDefault, "precision HIGHEST>, #stablehlo<precision HIGHEST>]"));
  EXPECT_FALSE(contains(product, Precision::kDefault, Precision::kHighest, "precision"));
  EXPECT_FALSE(contains("aten::mm(bf16[4,6], bf16[6,3])", Precision::kHighest, Precision::kHighest, "precision"));
}

// XLA's CPU client loses NaN in maximum and minimum, and has the comparison in their place; all others have the operations.
TEST(StableHlo, ExtremaByTarget) {
  const char* cases[] = {
      "aten::amax(f32[4,6]) {[1], false}",
      "aten::relu(bf16[5])",
      "aten::scatter_reduce.two(f32[4,6], i64[2,6]<4, f32[2,6]) {0, \"amax\", true}",
  };
  for (const char* line : cases) {
    Graph graph = run_passes(testing::CaseReader(line).run().trace, 0, {.keeps = has_stablehlo_form});
    for (const char* platform : {"cpu", "cuda", "tpu", "tt"}) {
      std::string text = write_stablehlo(graph, {.target = find_stablehlo_target(platform)});
      bool is_cpu = std::string(platform) == "cpu";
      EXPECT_EQ(text.find("stablehlo.maximum") == text.npos, is_cpu) << platform << "\n" << text;
    }
  }
}

TEST(StableHlo, TopKByTarget) {
  auto has_top_k = [](const char* line, const char* platform) {
    Graph graph = run_passes(testing::CaseReader(line).run().trace, 0, {.keeps = has_stablehlo_form});
    return write_stablehlo(graph, {.target = find_stablehlo_target(platform)}).find("chlo.top_k") != std::string::npos;
  };
  EXPECT_TRUE(has_top_k("aten::topk(bf16[4,6]) {3, 0, false, true}", "tpu"));
  EXPECT_FALSE(has_top_k("aten::topk(i64[4,6]) {3, 0, false, true}", "tpu")); // as float32 it would lose digits
  EXPECT_FALSE(has_top_k("aten::topk(f32[4,6]) {3, 0, false, true}", "cuda")); // whose kernel loses NaN
}

TEST(StableHlo, PairsByTarget) {
  auto count_reductions = [](const char* platform) {
    Graph graph = run_passes(testing::CaseReader("aten::argmax(f32[4,6]) {1, false}").run().trace, 0, {.keeps = has_stablehlo_form});
    std::string text = write_stablehlo(graph, {.target = find_stablehlo_target(platform)});
    size_t first = text.find("stablehlo.reduce");
    return first != text.npos && text.find("stablehlo.reduce\"", first + 1) != text.npos ? 2 : 1;
  };
  EXPECT_EQ(count_reductions("tpu"), 1);
  EXPECT_EQ(count_reductions("tt"), 2);
}

// A result without a reader costs nothing.
TEST(StableHlo, PositionsThatNothingReads) {
  for (const char* line :
       {"aten::max_pool2d_with_indices(f32[2,3,8,7]) {[2, 3], [2], [0, 1], [1, 2], false}", "aten::sort(f32[4,6]) {0, false}"}) {
    Graph trace = testing::CaseReader(line).run().trace;
    EXPECT_NE(write(trace).find(" \"stablehlo.iota\""), std::string::npos) << line;
    trace.outputs.resize(1);
    EXPECT_EQ(write(trace).find("stablehlo.iota"), std::string::npos) << write(trace);
  }
}

// A channels-last parameter comes as the row-major tensor that its memory is.
TEST(StableHlo, ParametersInMemoryOrder) {
  Graph graph;
  graph.outputs = {graph.add_parameter({DType::F32, {2, 3, 4, 5}}, {60, 1, 15, 3})};
  std::string text = write_stablehlo(graph);
  EXPECT_NE(text.find("%arg0: tensor<2x4x5x3xf32>"), std::string::npos) << text;
  EXPECT_NE(text.find("permutation = array<i64: 0, 3, 1, 2>"), std::string::npos) << text;
}

TEST(StableHlo, RowsThatAreNotSupportedAreNamed) {
  auto error_of = [](const std::string& line, KeepLibrary keeps) {
    try {
      write_stablehlo(run_passes(testing::CaseReader(line).run().trace, 0, {.keeps = keeps}));
    } catch (const UserError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::NotImplemented);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error_of("aten::mm(f32[2,2], f32[2,2])", [](const Op&) { return false; }), "aten::mm is not supported by this engine");
  EXPECT_EQ(error_of("aten::trace(f32[2,2])", keep_all), "aten::trace has no StableHLO form: this engine cannot run it");
}

// Writing stays linear in the graph's size.
TEST(StableHlo, TwentyThousandNodes) {
  constexpr int kNodes = 20000;
  Graph graph;
  Builder b(graph);
  ValueId x = graph.add_parameter({DType::F32, {64, 64}});
  for (int i = 0; i < kNodes; ++i) {
    b.set_location(i);
    x = b.unary(Prim::kTanh, x);
  }
  graph.outputs = {x};
  double start = cpu_ms();
  std::string text = write_stablehlo(graph, {.location = [](int32_t i) { return str("file.py:", i % 5000, " in forward"); }});
  double ms = cpu_ms() - start;
  RecordProperty("ms", std::to_string(ms));
  EXPECT_LT(ms, 2000); // a bound against quadratic scans
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), kNodes + 5000 + 5);
}

// ---- Views ----

// The memory's element numbers that a plan takes, in the view's order.
std::vector<int64_t> planned_addresses(const stablehlo::ViewPlan& plan, const ViewGeometry& view) {
  Dims axis_strides = contiguous_strides(plan.extents());
  int64_t first = 0;
  std::vector<int64_t> steps; // of the axes of more than one element
  for (size_t i = 0; i < plan.axes.size(); ++i) {
    first += plan.axes[i].start * axis_strides[i];
    if (plan.axes[i].count > 1) {
      steps.push_back(plan.axes[i].step * axis_strides[i]);
    }
  }
  ViewGeometry planned = view;
  planned.offset = first;
  planned.strides = Dims(view.dims.size(), 0);
  EXPECT_EQ(steps.size(), plan.dims.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    planned.strides[plan.dims[i]] = steps[i];
  }
  return testing::addresses(planned);
}

TEST(StableHlo, PlansShowTheViewsElements) {
  testing::RandomViews random(1);
  int planned = 0;
  constexpr int kViews = 4000;
  for (int i = 0; i < kViews; ++i) {
    Dims memory = random.draw_dims();
    ViewGeometry view = random.draw_either(memory);
    auto plan = stablehlo::plan_view(memory, view.dims, view.strides, view.offset);
    if (plan) {
      ++planned;
      ASSERT_EQ(planned_addresses(*plan, view), testing::addresses(view))
          << dims_text(memory, '[', ']') << " " << dims_text(view.dims, '[', ']') << dims_text(view.strides, '{', '}') << view.offset;
    }
  }
  EXPECT_GT(planned, kViews / 2);
}

TEST(StableHlo, PlainViewsAreOneOperation) {
  struct Plain {
    Dims memory, dims, strides;
    int64_t offset;
    const char* form;
  };
  const Plain cases[] = {
      {{6, 4}, {3, 4}, {8, 1}, 0, " slice"}, // x[::2]
      {{6, 4}, {6}, {4}, 1, " slice reshape"}, // x[:, 1]
      {{6, 4}, {6, 2}, {4, 1}, 1, " slice"}, // x[:, 1:3]
      {{6, 4}, {4, 6}, {1, 4}, 0, " transpose"},
      {{2, 3, 4}, {6, 4}, {4, 1}, 0, " reshape"},
      {{6}, {5, 6}, {0, 1}, 0, " broadcast_in_dim"},
      {{6, 4}, {6, 4}, {4, 1}, 0, ""},
      {{6, 4}, {4}, {5}, 0, " reshape slice"}, // the diagonal
      {{8}, {3, 4}, {2, 1}, 0, " constant iota constant multiply add iota constant multiply add gather"}, // unfold with overlap
  };
  for (const Plain& p : cases) {
    Graph graph;
    Builder b(graph);
    ValueId x = graph.add_parameter({DType::F32, p.memory});
    graph.outputs = {b.view(x, contiguous_strides(p.memory), p.dims, p.strides, p.offset)};
    EXPECT_EQ(form_of(write_stablehlo(graph)), p.form) << dims_text(p.dims, '[', ']');
  }
}

} // namespace
} // namespace torch_xla
