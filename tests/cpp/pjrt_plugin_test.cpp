// Loading plugins, and what a plugin that fails does to its client: one error each, nothing leaks.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>

#include "engine/pjrt/executable.h"

namespace torch_xla::pjrt {
namespace {

constexpr char kFake[] = XLA_FAKE_PLUGIN;
const Type kType{DType::F32, {4}};
const char kProgram[] = R"(module @program {
  func.func public @main(%0: tensor<4xf32>) -> (tensor<4xf32>, tensor<f64>) {
)";

template <typename Function>
Function* fake_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen(kFake, RTLD_NOW | RTLD_LOCAL), name));
}

void fail_next(const char* where, c::ErrorCode code) {
  fake_function<void(const char*, int)>("fake_pjrt_fail")(where, static_cast<int>(code));
}

int live_objects() {
  return fake_function<int()>("fake_pjrt_live_objects")();
}

// Runs the body, which must throw a UserError whose text has all of `words`.
template <typename Body>
void expect_error(ErrorKind kind, std::initializer_list<const char*> words, Body body) {
  try {
    body();
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const char* word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word << " is not in: " << error.what();
    }
  }
}

void expect_bad_table(const char* fault, std::initializer_list<const char*> words) {
  setenv("FAKE_PJRT_TABLE", fault, 1);
  expect_error(ErrorKind::Runtime, words, [] { Plugin::load(kFake); });
  unsetenv("FAKE_PJRT_TABLE");
}

TEST(PjrtPlugin, FilesThatAreNoPlugin) {
  expect_error(ErrorKind::Runtime, {"/no/such/plugin.so", "cannot be loaded", "No such file"}, [] { Plugin::load("/no/such/plugin.so"); });
  std::string text = ::testing::TempDir() + "text.so";
  std::ofstream(text) << "not a shared object";
  expect_error(ErrorKind::Runtime, {text.c_str(), "cannot be loaded"}, [&] { Plugin::load(text); });
  // The head of a plugin of another machine (ELF for aarch64).
  std::string foreign = ::testing::TempDir() + "foreign.so";
  std::ifstream own(kFake, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(own)), std::istreambuf_iterator<char>());
  bytes[18] = static_cast<char>(0xB7);
  std::ofstream(foreign, std::ios::binary) << bytes;
  expect_error(ErrorKind::Runtime, {foreign.c_str(), "cannot be loaded"}, [&] { Plugin::load(foreign); });
  expect_error(ErrorKind::Runtime, {"libm.so.6", "no function GetPjrtApi"}, [] { Plugin::load("libm.so.6"); });
}

TEST(PjrtPlugin, TablesThatDoNotServe) {
  expect_bad_table("null", {kFake, "GetPjrtApi returned null"});
  expect_bad_table("empty", {kFake, "no entries"});
  expect_bad_table("old", {kFake, "version 0.1", "needed is 0.40"});
  expect_bad_table("hole", {kFake, "has no PJRT_Client_Compile"});
  expect_bad_table("short", {"PJRT_LoadedExecutable_Execute", "PJRT_Buffer_ToHostBuffer"});
  EXPECT_EQ(Plugin::load(kFake)->version(), "0.90");
}

TEST(PjrtPlugin, EntriesThatAreMissingAreAnErrorWhenCalled) {
  PluginRef plugin = Plugin::load(kFake);
  EXPECT_FALSE(plugin->has(kDevice_MemoryStats));
  auto args = c::make<c::DeviceMemoryStats>();
  expect_error(ErrorKind::NotImplemented, {kFake, "has no PJRT_Device_MemoryStats"}, [&] {
    plugin->call(kDevice_MemoryStats, args, "asking for the memory");
  });
}

TEST(PjrtPlugin, CodesBecomeKinds) {
  const std::pair<c::ErrorCode, ErrorKind> kCases[] = {
      {c::ErrorCode::kResourceExhausted, ErrorKind::OutOfMemory},
      {c::ErrorCode::kUnimplemented, ErrorKind::NotImplemented},
      {c::ErrorCode::kInvalidArgument, ErrorKind::Runtime},
      {c::ErrorCode::kInternal, ErrorKind::Runtime},
      {static_cast<c::ErrorCode>(99), ErrorKind::Runtime},
  };
  for (auto [code, kind] : kCases) {
    fail_next("create", code);
    expect_error(kind, {"creating a client", "told to fail at create"}, [] { Client::create(Plugin::load(kFake)); });
  }
}

class FakeClient : public ::testing::Test {
 protected:
  FakeClient() {
    counts_.emplace_back(0);
    counts_.emplace_back(1);
  }
  void TearDown() override {
    executable_.reset();
    client_.reset();
    EXPECT_EQ(live_objects(), before_);
  }
  EngineBufferRef upload(int device = 0) {
    const float data[4] = {1, 2, 3, 4};
    return std::make_shared<PjrtBuffer>(kType, one_tile(client_->upload(device, kType, {}, data)), counts_, device);
  }
  void compile(int device = 0) {
    Graph graph;
    graph.outputs = {graph.add_parameter(kType), graph.add_scalar(DType::F64)};
    graph.scalars.clear();
    executable_ =
        std::make_unique<PjrtExecutable>(client_->compile(device, {0}, kProgram), Signature(graph, {}, 1), kProgram, counts_, device);
  }
  std::vector<float> read(const EngineBufferRef& buffer) {
    std::vector<float> values(4);
    static_cast<const PjrtBuffer&>(*buffer).download(*client_, values.data());
    return values;
  }
  RunArgs args_for(const EngineBufferRef& input) {
    RunArgs args;
    args.inputs = {input};
    args.donated = {false};
    return args;
  }

  int before_ = live_objects();
  ClientRef client_ = Client::create(Plugin::load(kFake));
  MemoryCounts counts_;
  std::unique_ptr<PjrtExecutable> executable_;
  const std::vector<float> expected_{1, 2, 3, 4};
};

TEST_F(FakeClient, TransfersFail) {
  fail_next("upload", c::ErrorCode::kResourceExhausted);
  expect_error(ErrorKind::OutOfMemory, {"copying a tensor to the device", "RESOURCE_EXHAUSTED"}, [&] { upload(); });
  EngineBufferRef buffer = upload();
  fail_next("download", c::ErrorCode::kDataLoss);
  expect_error(ErrorKind::Runtime, {"copying a tensor from the device", "DATA_LOSS"}, [&] { read(buffer); });
  EXPECT_EQ(read(buffer), expected_);
}

TEST_F(FakeClient, NumbersTakeThePlaceOfTheLastRuns) {
  Graph graph;
  graph.outputs = {graph.add_parameter(kType), graph.add_scalar(DType::F64)};
  graph.add_scalar(DType::F64);
  graph.add_scalar(DType::F64);
  executable_ = std::make_unique<PjrtExecutable>(client_->compile(0, {0}, kProgram), Signature(graph, {}, 1), kProgram, counts_, 0);
  EngineBufferRef input = upload();
  auto live_after = [&](std::vector<uint64_t> numbers) {
    RunArgs args = args_for(input);
    args.scalars = std::move(numbers);
    executable_->run(args);
    args.outputs.clear();
    return live_objects();
  };
  int live = live_after({1, 2, 3});
  EXPECT_EQ(live_after({1, 2, 3}), live);
  EXPECT_EQ(live_after({1, 4, 5}), live);
}

// The fake plugin cannot call back.
TEST_F(FakeClient, AdoptedMemoryIsReleasedAtOnce) {
  float data[4] = {1, 2, 3, 4};
  int releases = 0;
  {
    PjrtBuffer buffer(kType, one_tile(client_->adopt(0, kType, data, [&releases] { ++releases; })), counts_, 0);
    EXPECT_EQ(releases, 1);
  }
  fail_next("upload", c::ErrorCode::kInternal);
  expect_error(
      ErrorKind::Runtime, {"copying a tensor to the device"}, [&] { client_->adopt(0, kType, data, [&releases] { ++releases; }); });
  EXPECT_EQ(releases, 1);
}

TEST_F(FakeClient, CompilationFails) {
  fail_next("compile", c::ErrorCode::kUnimplemented);
  expect_error(ErrorKind::NotImplemented, {"compiling a program", "UNIMPLEMENTED"}, [&] { compile(); });
  fail_next("outputs", c::ErrorCode::kInternal);
  expect_error(ErrorKind::Runtime, {"2 outputs", "3"}, [&] { compile(); });
}

TEST_F(FakeClient, RunsFailAndTheNextOneWorks) {
  compile();
  EngineBufferRef input = upload();
  for (const char* where : {"execute", "complete"}) {
    fail_next(where, c::ErrorCode::kResourceExhausted);
    expect_error(ErrorKind::OutOfMemory, {"running a program", where}, [&] {
      RunArgs args = args_for(input);
      executable_->run(args);
    });
    EXPECT_EQ(read(input), expected_);
  }
  RunArgs args = args_for(input);
  executable_->run(args);
  ASSERT_EQ(args.outputs.size(), 2u);
  EXPECT_EQ(read(args.outputs[0]), expected_);
  EXPECT_EQ(counts_[0].info().bytes_used, 16 + 16 + 8);
}

TEST_F(FakeClient, ProgramsRunOnTheDeviceThatTheyAreCompiledFor) {
  EXPECT_EQ(client_->num_devices(), 2);
  EXPECT_NE(client_->fingerprint(0), client_->fingerprint(1));
  compile(1);
  RunArgs args = args_for(upload(1));
  EXPECT_EQ(args.inputs[0]->device(), 1);
  executable_->run(args);
  EXPECT_EQ(args.outputs[0]->device(), 1);
  EXPECT_EQ(read(args.outputs[0]), expected_);
  EXPECT_EQ(counts_[0].info().bytes_used, 0);
  EXPECT_GT(counts_[1].info().bytes_used, 0);
  RunArgs foreign = args_for(upload(0));
  EXPECT_THROW(executable_->run(foreign), InternalError);
}

} // namespace
} // namespace torch_xla::pjrt
