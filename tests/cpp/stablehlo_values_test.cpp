// What a PJRT plugin computes of the writer's texts: the CPU engine's values for every case of tests/rows, and views' elements.
// XLA_TEST_PJRT_PLUGIN names the plugin (tools/compilers/wheels.py fetches one with XLA's CPU client).
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/engine.h"
#include "engine/pjrt/pjrt_engine.h"
#include "random_views.h"
#include "row_cases.h"

namespace torch_xla {
namespace {

using testing::HostTensor;
using testing::RowCase;

Engine& plugin_engine() {
  static Engine* engine = [] {
    setenv("XLA_FLAGS", "--xla_backend_optimization_level=0", /*overwrite=*/0); // hundreds of small programs: compiling is all the time
    return open_pjrt_engine("XLA_TEST_PJRT_PLUGIN", {std::getenv("XLA_TEST_PJRT_PLUGIN"), {}});
  }();
  return *engine;
}

// The buffer's elements in row-major order.
HostTensor download(Engine& engine, const EngineBuffer& buffer) {
  HostTensor raw{buffer.type(), std::vector<std::byte>(static_cast<size_t>(buffer.type().nbytes()))};
  engine.download(buffer, raw.data.data());
  const Dims& dims = raw.type.dims;
  auto places = testing::addresses({dims, {}, dims, buffer.strides(), 0});
  size_t size = item_size(raw.type.dtype);
  HostTensor t = raw;
  for (size_t i = 0; i < t.data.size() / size; ++i) {
    std::memcpy(t.data.data() + i * size, raw.data.data() + static_cast<size_t>(places[i]) * size, size);
  }
  return t;
}

std::vector<HostTensor> run(
    Engine& engine, const Graph& trace, const std::vector<HostTensor>& inputs, const std::vector<uint64_t>& scalars) {
  auto executable = engine.compile_trace(trace);
  RunArgs args;
  for (const HostTensor& t : inputs) {
    args.inputs.push_back(engine.upload(0, t.type, {}, t.data.data()));
  }
  args.donated.assign(inputs.size(), false);
  args.scalars = scalars;
  executable->run(args);
  std::vector<HostTensor> outputs;
  for (const EngineBufferRef& buffer : args.outputs) {
    outputs.push_back(download(engine, *buffer));
  }
  return outputs;
}

// Integers are equal, numbers near; NaN meets NaN.
void expect_near(const HostTensor& got, const HostTensor& want, double tolerance) {
  ASSERT_EQ(got.type, want.type);
  double allowed = is_float(want.type.dtype) ? tolerance : 0;
  for (size_t i = 0; i < static_cast<size_t>(want.type.numel()); ++i) {
    double g = testing::read_element(got, i);
    double w = testing::read_element(want, i);
    bool same = g == w || (std::isnan(g) && std::isnan(w)) || std::fabs(g - w) <= allowed * (1 + std::fabs(w));
    ASSERT_TRUE(same) << "element " << i << ": " << g << ", not " << w;
  }
}

class PluginValues : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("XLA_TEST_PJRT_PLUGIN")) {
      GTEST_SKIP() << "XLA_TEST_PJRT_PLUGIN names no PJRT plugin";
    }
  }
};

class PluginRows : public PluginValues, public ::testing::WithParamInterface<std::filesystem::path> {};

TEST_P(PluginRows, AgreeWithTheCpuEngine) {
  for (const RowCase& c : testing::read_row_cases(GetParam())) {
    SCOPED_TRACE(c.line);
    try {
      std::vector<HostTensor> want = run(cpu_engine(), c.trace, c.inputs, c.scalars);
      std::vector<HostTensor> got = run(plugin_engine(), c.trace, c.inputs, c.scalars);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        expect_near(got[i], want[i], c.tolerance);
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, PluginRows, ::testing::ValuesIn(testing::row_case_files()), [](const auto& info) {
  return info.param.stem().string();
});

// ---- Views ----

HostTensor numbered(const Dims& dims, float first) {
  HostTensor t{{DType::F32, dims}, std::vector<std::byte>(static_cast<size_t>(num_elements(dims)) * sizeof(float))};
  for (size_t i = 0; i < static_cast<size_t>(num_elements(dims)); ++i) {
    testing::write_element(t, i, first + static_cast<double>(i));
  }
  return t;
}

std::vector<double> elements(const HostTensor& t) {
  std::vector<double> list;
  for (size_t i = 0; i < static_cast<size_t>(t.type.numel()); ++i) {
    list.push_back(testing::read_element(t, i));
  }
  return list;
}

// A graph with many views of one parameter, and updates of it through them; the elements are told by their addresses.
class ViewBatch {
 public:
  explicit ViewBatch(unsigned seed) : random_(seed) {
    base_ = {DType::F32, random_.draw_dims()};
    x_ = graph_.add_parameter(base_);
    inputs_.push_back(numbered(base_.dims, 1));
    for (int i = 0; i < 12; ++i) {
      add(random_.draw_either(base_.dims));
    }
  }
  void check() {
    std::vector<HostTensor> got = run(plugin_engine(), graph_, inputs_, {});
    for (size_t i = 0; i < views_.size(); ++i) {
      check_view(views_[i], got[2 * i]);
      check_update(views_[i], inputs_[i + 1], got[2 * i + 1]);
    }
  }

 private:
  void add(const ViewGeometry& view) {
    Builder b(graph_);
    ValueId update = graph_.add_parameter({DType::F32, view.dims});
    inputs_.push_back(numbered(view.dims, 1000));
    graph_.outputs.push_back(b.view(x_, view.base_strides, view.dims, view.strides, view.offset));
    graph_.outputs.push_back(b.view_update(x_, update, view.base_strides, view.strides, view.offset));
    views_.push_back(view);
  }
  // By address of the base's memory: the base's element there.
  std::vector<size_t> elements_at(const ViewGeometry& view) const {
    std::vector<int64_t> places = testing::addresses({base_.dims, {}, base_.dims, view.base_strides, 0});
    std::vector<size_t> elements(places.size());
    for (size_t i = 0; i < places.size(); ++i) {
      elements[static_cast<size_t>(places[i])] = i;
    }
    return elements;
  }
  void check_view(const ViewGeometry& view, const HostTensor& got) const {
    std::vector<size_t> elements = elements_at(view);
    std::vector<int64_t> addresses = testing::addresses(view);
    for (size_t i = 0; i < addresses.size(); ++i) {
      ASSERT_EQ(testing::read_element(got, i), 1.0 + static_cast<double>(elements[static_cast<size_t>(addresses[i])])) << describe(view);
    }
  }
  // Where several elements are written to one place any of them may stay.
  void check_update(const ViewGeometry& view, const HostTensor& update, const HostTensor& got) const {
    std::vector<size_t> elements = elements_at(view);
    std::vector<int64_t> addresses = testing::addresses(view);
    std::vector<std::vector<double>> allowed(elements.size());
    for (size_t i = 0; i < addresses.size(); ++i) {
      allowed[elements[static_cast<size_t>(addresses[i])]].push_back(testing::read_element(update, i));
    }
    for (size_t i = 0; i < allowed.size(); ++i) {
      std::vector<double> values = allowed[i].empty() ? std::vector<double>{1.0 + static_cast<double>(i)} : allowed[i];
      double value = testing::read_element(got, i);
      ASSERT_TRUE(std::find(values.begin(), values.end(), value) != values.end()) << describe(view) << " element " << i << " is " << value;
    }
  }
  static std::string describe(const ViewGeometry& v) {
    return str(
        dims_text(v.base_dims, '[', ']'),
        dims_text(v.base_strides, '{', '}'),
        " -> ",
        dims_text(v.dims, '[', ']'),
        dims_text(v.strides, '{', '}'),
        " + ",
        v.offset);
  }

  testing::RandomViews random_;
  Type base_;
  Graph graph_;
  ValueId x_;
  std::vector<HostTensor> inputs_;
  std::vector<ViewGeometry> views_;
};

// The recorder makes no such memory, but the graph may have it.
TEST_F(PluginValues, MemoryWithGapsOrOverlap) {
  struct Place {
    Dims dims, strides;
    ViewGeometry view;
    std::vector<double> shown, updated;
  };
  const Place places[] = {
      {{2, 2}, {4, 1}, {{}, {}, {2}, {4}, 1}, {2, 4}, {1, 1000, 3, 1001}},
      {{3, 2}, {2, 3}, {{}, {}, {3}, {2}, 3}, {2, 4, 6}, {1, 1000, 3, 1001, 5, 1002}},
      {{3, 2}, {0, 1}, {{}, {}, {2}, {1}, 0}, {5, 6}, {1000, 1001, 1000, 1001, 1000, 1001}},
      {{2, 3}, {1, 1}, {{}, {}, {4}, {1}, 0}, {1, 4, 5, 6}, {1000, 1001, 1002, 1001, 1002, 1003}},
  };
  for (const Place& p : places) {
    Graph graph;
    Builder b(graph);
    ValueId x = graph.add_parameter({DType::F32, p.dims});
    ValueId update = graph.add_parameter({DType::F32, p.view.dims});
    graph.outputs = {
        b.view(x, p.strides, p.view.dims, p.view.strides, p.view.offset),
        b.view_update(x, update, p.strides, p.view.strides, p.view.offset)};
    std::vector<HostTensor> got = run(plugin_engine(), graph, {numbered(p.dims, 1), numbered(p.view.dims, 1000)}, {});
    EXPECT_EQ(elements(got[0]), p.shown);
    EXPECT_EQ(elements(got[1]), p.updated);
  }
}

TEST_F(PluginValues, ViewsAndTheirUpdates) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    ViewBatch(seed).check();
  }
}

} // namespace
} // namespace torch_xla
