// The client against a real plugin: values, transfers, donation, serialized programs, errors.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "engine/pjrt/executable.h"
#include "ops/registry.h"

namespace torch_xla::pjrt {
namespace {

const Type kPair{DType::F32, {2}};

// The plugin that XLA_TEST_PJRT_PLUGIN names, once for all tests: clients of it share the process's processors.
ClientRef open_client() {
  static const char* path = std::getenv("XLA_TEST_PJRT_PLUGIN");
  static ClientRef client = path && *path ? Client::create(Plugin::load(path)) : nullptr;
  return client;
}

class PjrtClient : public ::testing::Test {
 protected:
  void SetUp() override {
    counts_.emplace_back(0);
    if (!client_) {
      GTEST_SKIP() << "XLA_TEST_PJRT_PLUGIN names no plugin; tools/compilers/wheels.py fetches one";
    }
  }
  EngineBufferRef upload(const Type& type, const void* data, const Dims& strides = {}) {
    return std::make_shared<PjrtBuffer>(type, one_tile(client_->upload(0, type, strides, data)), counts_, 0);
  }
  template <typename T>
  std::vector<T> read(const EngineBufferRef& buffer) {
    std::vector<T> values(static_cast<size_t>(buffer->type().numel()));
    static_cast<const PjrtBuffer&>(*buffer).download(*client_, values.data());
    return values;
  }
  static Signature signature_of(const Graph& graph, std::vector<Type> outputs, std::vector<int32_t> aliases) {
    Signature signature(graph, {}, 1);
    signature.output_shardings.resize(outputs.size());
    signature.outputs = std::move(outputs);
    signature.aliases = std::move(aliases);
    return signature;
  }
  // A program of parameters and numbers of these types.
  std::unique_ptr<PjrtExecutable> program(
      const std::string& mlir,
      std::vector<Type> parameters,
      std::vector<DType> scalars,
      std::vector<Type> outputs,
      std::vector<int32_t> aliases) {
    Graph graph;
    for (const Type& type : parameters) {
      graph.add_parameter(type);
    }
    for (DType dtype : scalars) {
      graph.add_scalar(dtype);
    }
    return std::make_unique<PjrtExecutable>(
        client_->compile(0, {0}, mlir), signature_of(graph, std::move(outputs), std::move(aliases)), mlir, counts_, 0);
  }
  // x + s; the parameter may be given away.
  std::unique_ptr<PjrtExecutable> add_number() {
    return program(
        R"(module @program {
  func.func public @main(%x: tensor<2xf32> {tf.aliasing_output = 0 : i32}, %s: tensor<f64>) -> tensor<2xf32> {
    %0 = stablehlo.convert %s : (tensor<f64>) -> tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %2 = stablehlo.add %x, %1 : tensor<2xf32>
    return %2 : tensor<2xf32>
  }
})",
        {kPair},
        {DType::F64},
        {kPair},
        {0});
  }
  std::vector<EngineBufferRef> run(
      PjrtExecutable& executable, std::vector<EngineBufferRef> inputs, std::vector<uint64_t> scalars, bool donate) {
    RunArgs args;
    args.donated.assign(inputs.size(), donate);
    args.inputs = std::move(inputs);
    args.scalars = std::move(scalars);
    executable.run(args);
    return args.outputs;
  }

  ClientRef client_ = open_client();
  MemoryCounts counts_;
};

TEST_F(PjrtClient, Transfers) {
  const float data[6] = {0, 1, 2, 3, 4, 5};
  EngineBufferRef straight = upload({DType::F32, {2, 3}}, data);
  EXPECT_EQ(read<float>(straight), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(straight->strides(), (Dims{3, 1}));
  // Column-major memory becomes row-major.
  EXPECT_EQ(read<float>(upload({DType::F32, {2, 3}}, data, {1, 2})), (std::vector<float>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(read<float>(upload({DType::F32, {0, 3}}, data)), std::vector<float>());
  EXPECT_EQ(read<float>(upload({DType::F32, {}}, data + 5)), std::vector<float>{5});
  EXPECT_EQ(counts_[0].info().bytes_used, 24);
  EXPECT_EQ(counts_[0].info().peak_bytes_used, 48);
}

TEST_F(PjrtClient, EachTypeKeepsItsBits) {
  const uint64_t data[2] = {0x0100010001000100, 0x0001000100010001}; // valid for Bool, too
  for (int code = 0; code <= static_cast<int>(DType::F4E2M1X2); ++code) {
    auto dtype = static_cast<DType>(code);
    if (size_t size = item_size(dtype)) {
      Type type{dtype, {static_cast<int64_t>(sizeof(data) / size)}};
      uint64_t back[2] = {};
      client_->download(client_->upload(0, type, {}, data), type, back);
      EXPECT_EQ(back[0], data[0]) << dtype_name(dtype);
      EXPECT_EQ(back[1], data[1]) << dtype_name(dtype);
    }
  }
}

TEST_F(PjrtClient, RunsWithNumbersThatChange) {
  auto executable = add_number();
  const float data[2] = {1, 2};
  EngineBufferRef x = upload(kPair, data);
  for (double number : {0.5, 0.5, -3.0}) {
    auto outputs = run(*executable, {x}, {std::bit_cast<uint64_t>(number)}, false);
    EXPECT_EQ(read<float>(outputs[0]), (std::vector<float>{static_cast<float>(1 + number), static_cast<float>(2 + number)}));
  }
  EXPECT_EQ(read<float>(x), (std::vector<float>{1, 2})); // aliased, but not given away
}

TEST_F(PjrtClient, DonatedMemoryIsTaken) {
  auto executable = add_number();
  const float data[2] = {1, 2};
  EngineBufferRef x = upload(kPair, data);
  auto outputs = run(*executable, {x}, {std::bit_cast<uint64_t>(1.0)}, true);
  EXPECT_EQ(read<float>(outputs[0]), (std::vector<float>{2, 3}));
  EXPECT_THROW(read<float>(x), UserError);
}

// The memory is the plugin's until the buffer that uses it, or the output that has taken it, is gone.
TEST_F(PjrtClient, AdoptedMemory) {
  alignas(64) float data[2] = {1, 2};
  std::atomic<int> releases{0};
  auto adopt = [&] {
    return std::make_shared<PjrtBuffer>(kPair, one_tile(client_->adopt(0, kPair, data, [&releases] { ++releases; })), counts_, 0);
  };
  EngineBufferRef x = adopt();
  EXPECT_EQ(read<float>(x), (std::vector<float>{1, 2}));
  auto executable = add_number();
  EXPECT_EQ(read<float>(run(*executable, {x}, {std::bit_cast<uint64_t>(1.0)}, false)[0]), (std::vector<float>{2, 3}));
  EXPECT_EQ(data[0], 1); // not given away
  x.reset();
  auto outputs = run(*executable, {adopt()}, {std::bit_cast<uint64_t>(2.0)}, true);
  EXPECT_EQ(read<float>(outputs[0]), (std::vector<float>{3, 4}));
  outputs.clear();
  for (int i = 0; i < 1000 && releases < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(releases, 2);
}

TEST_F(PjrtClient, SerializedProgramsRun) {
  auto executable = add_number();
  std::string bytes = client_->serialize(client_->compile(0, {0}, executable->text()));
  ASSERT_FALSE(bytes.empty());
  Graph graph;
  graph.add_parameter(kPair);
  graph.outputs = {graph.add_scalar(DType::F64)};
  PjrtExecutable loaded(client_->load(bytes), signature_of(graph, {kPair}, {0}), executable->text(), counts_, 0);
  const float data[2] = {1, 2};
  auto outputs = run(loaded, {upload(kPair, data)}, {std::bit_cast<uint64_t>(2.0)}, false);
  EXPECT_EQ(read<float>(outputs[0]), (std::vector<float>{3, 4}));
  EXPECT_THROW(client_->load("damaged"), UserError);
}

TEST_F(PjrtClient, MatrixProduct) {
  auto executable = program(
      R"(module @program {
  func.func public @main(%a: tensor<2x3xf32>, %b: tensor<3x2xf32>) -> (tensor<2x2xf32>, tensor<2x3xf32>) {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
    %1 = stablehlo.tanh %a : tensor<2x3xf32>
    return %0, %1 : tensor<2x2xf32>, tensor<2x3xf32>
  }
})",
      {{DType::F32, {2, 3}}, {DType::F32, {3, 2}}},
      {},
      {{DType::F32, {2, 2}}, {DType::F32, {2, 3}}},
      {-1, -1});
  const float a[6] = {1, 2, 3, 4, 5, 6};
  const float b[6] = {1, 0, 0, 1, 1, 1};
  auto outputs = run(*executable, {upload({DType::F32, {2, 3}}, a), upload({DType::F32, {3, 2}}, b)}, {}, false);
  EXPECT_EQ(read<float>(outputs[0]), (std::vector<float>{4, 5, 10, 11}));
  std::vector<float> tanhs = read<float>(outputs[1]);
  for (int i = 0; i < 6; ++i) {
    EXPECT_NEAR(tanhs[i], std::tanh(a[i]), 1e-6);
  }
}

TEST_F(PjrtClient, BadProgramsAreErrors) {
  try {
    client_->compile(0, {0}, "module { func.func public @main() -> tensor<f32> { %0 = stablehlo.nonsense } }");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("compiling a program"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(add_number());
}

// ---- Without a plugin ----
std::vector<int32_t> aliases_of(const Graph& graph, const std::vector<bool>& donated) {
  return Signature(graph, donated, 1).aliases;
}

TEST(PjrtAliases, FollowUpdatesToTheirWeights) {
  // Momentum: m2 = 0.9 m + g; w2 = w - m2. The gradient's type is the same, but it is not given away.
  Graph graph = parse_graph(
      R"(graph(%0: f32[4], %1: f32[4], %2: f32[4], %3: f32[2]) {
    %4: f32[4] = add(%1, %2)
    %5: f32[4] = subtract(%0, %4)
    %6: f32[2] = negate(%3)
    return %4, %5, %6, %5, %2
  })",
      find_op);
  EXPECT_EQ(aliases_of(graph, {true, true, false, false}), (std::vector<int32_t>{1, 0, -1, -1}));
  EXPECT_EQ(aliases_of(graph, {false, true, false, true}), (std::vector<int32_t>{-1, 0, -1, 2}));
  EXPECT_EQ(aliases_of(graph, {}), (std::vector<int32_t>{-1, -1, -1, -1}));
}

TEST(PjrtAliases, FollowUpdatesInAnotherType) {
  Graph graph = parse_graph(
      R"(graph(%0: bf16[4], %1: f32[4]) {
    %2: f32[4] = convert(%0)
    %3: f32[4] = subtract(%2, %1)
    %4: bf16[4] = convert(%3)
    return %4
  })",
      find_op);
  EXPECT_EQ(aliases_of(graph, {true, true}), (std::vector<int32_t>{0, -1}));
}

} // namespace
} // namespace torch_xla::pjrt
