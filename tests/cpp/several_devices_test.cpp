// The engine, the pools and the executors with two devices.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "core/errors.h"
#include "engine/cpu/memory/pool.h"
#include "engine/engine.h"
#include "function_program.h"
#include "ir/builder.h"
#include "recording/generator.h"
#include "runtime/executor.h"
#include "runtime/wait.h"

namespace torch_xla {
namespace {

// Before the first test asks for the number: so all tests run with two, and those of other files use the first.
const bool two_devices = setenv("CPU_NUM_DEVICES", "2", /*overwrite=*/1) == 0;

const Type kType{DType::F32, {4}};
const float kData[4] = {1, 2, 3, 4};

RunArgs args_of(const EngineBufferRef& input) {
  RunArgs args;
  args.inputs = {input};
  args.donated = {false};
  return args;
}

std::shared_ptr<Executable> compile_double(int device) {
  Graph graph;
  Builder builder(graph);
  Ex x{&builder, graph.add_parameter(kType)};
  graph.outputs = {(x + x).id()};
  CompileOptions options;
  options.device = device;
  return cpu_engine().compile(graph, options);
}

TEST(SeveralDevices, BuffersAndProgramsKnowTheirs) {
  ASSERT_TRUE(two_devices);
  ASSERT_EQ(cpu_engine().num_devices(), 2);
  for (int device = 0; device < 2; ++device) {
    EngineBufferRef buffer = cpu_engine().upload(device, kType, {}, kData);
    EXPECT_EQ(buffer->device(), device);
    EXPECT_EQ(cpu_engine().adopt(device, kType, {}, buffer->host_pointer(), {})->device(), device);
    auto executable = compile_double(device);
    RunArgs args = args_of(buffer);
    executable->run(args);
    EXPECT_EQ(args.outputs[0]->device(), device);
    EXPECT_EQ(static_cast<float*>(args.outputs[0]->host_pointer())[3], 8);
    RunArgs foreign = args_of(cpu_engine().upload(1 - device, kType, {}, kData));
    EXPECT_THROW(executable->run(foreign), InternalError);
  }
}

TEST(SeveralDevices, MemoryIsCountedByDevice) {
  int64_t before[2] = {cpu_engine().memory_info(0).bytes_used, cpu_engine().memory_info(1).bytes_used};
  auto executable = compile_double(1);
  RunArgs args = args_of(cpu_engine().upload(1, kType, {}, kData));
  executable->run(args);
  EXPECT_EQ(cpu_engine().memory_info(0).bytes_used, before[0]);
  EXPECT_GT(cpu_engine().memory_info(1).bytes_used, before[1]);
  args.outputs.clear();
  EXPECT_EQ(cpu_engine().memory_info(1).bytes_used, before[1]);
}

TEST(SeveralDevices, AGeneratorIsOfOne) {
  EXPECT_EQ(XlaGenerator(1).device().index(), 1);
  EXPECT_THROW(XlaGenerator(-1), InternalError);
}

TEST(SeveralDevices, ThoseThatDoNotExistAreRefused) {
  EXPECT_NO_THROW(check_device(1));
  for (int device : {-1, 2, 64}) {
    try {
      check_device(device);
      FAIL();
    } catch (const UserError& e) {
      EXPECT_EQ(e.what(), str("device index ", device, " does not exist: there are 2 xla devices, xla:0 to xla:1"));
    }
  }
}

// Each pool gives and takes on threads of its own; whose a block is, its address tells.
TEST(SeveralDevices, PoolsKeepTheirBlocks) {
  auto use = [](int device) {
    cpu::Pool& pool = cpu::Pool::get(device);
    for (size_t i = 0; i < 2000; ++i) {
      void* small = pool.allocate(i % 700 + 1);
      void* large = pool.allocate((i % 5 + 1) << 20);
      ASSERT_EQ(cpu::Pool::find(small), &pool);
      ASSERT_EQ(cpu::Pool::find(large), &pool);
      pool.release(small);
      pool.release(large);
      if (i % 100 == 0) {
        pool.empty_cache();
      }
    }
  };
  std::jthread first(use, 0);
  std::jthread second(use, 1);
  int local = 0;
  EXPECT_EQ(cpu::Pool::find(&local), nullptr);
}

// ---- Executors ----

BufferRef enqueue(int device, std::function<void(RunArgs&)> body) {
  std::unique_ptr<Run> run = Executor::get(device).new_run();
  run->executable = std::make_shared<FunctionProgram>([body = std::move(body)](RunArgs& args) {
    body(args);
    args.outputs = {nullptr};
  });
  run->outputs = {std::make_shared<Buffer>(kType, Dims())};
  BufferRef output = run->outputs[0];
  Executor::get(device).enqueue(std::move(run));
  return output;
}

void wait_for(const std::atomic<bool>& flag) {
  while (!flag) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(ExecutorsOfDevices, RunSideBySide) {
  std::atomic<bool> go{false};
  enqueue(0, [&](RunArgs&) { wait_for(go); });
  enqueue(1, [](RunArgs&) {})->wait_for_end(); // beside the other, which waits for it
  EXPECT_TRUE(Executor::get(1).idle());
  EXPECT_FALSE(Executor::get(0).idle());
  EXPECT_NO_THROW(Executor::get(1).drain());
  go = true;
  Executor::get(0).drain();
}

TEST(ExecutorsOfDevices, TellTheErrorsOfTheirOwn) {
  BufferRef failed = enqueue(1, [](RunArgs&) { throw UserError(ErrorKind::Value, "bad step"); });
  failed->wait_for_end();
  EXPECT_NO_THROW(Executor::get(0).check_news());
  EXPECT_NO_THROW(Executor::get(0).drain());
  EXPECT_TRUE(failed->has_news());
  EXPECT_THROW(Executor::get(1).drain(), UserError);
  EXPECT_NO_THROW(Executor::get(1).drain());
}

TEST(ExecutorsOfDevices, AnErrorIsSettledWithoutTheOthers) {
  Executor::get(1).settle(nullptr); // what other tests have cancelled
  std::atomic<bool> go{false};
  enqueue(0, [&](RunArgs&) { wait_for(go); });
  EXPECT_EQ(Executor::get(1).settle(nullptr), std::vector<int>{1});
  go = true;
  Executor::get(0).drain();
}

TEST(ExecutorsOfDevices, AnInterruptCancelsAll) {
  std::vector<BufferRef> outputs;
  for (int device = 0; device < 2; ++device) {
    outputs.push_back(enqueue(device, [](RunArgs& args) {
      while (!args.options.is_cancelled()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      throw UserError(ErrorKind::Runtime, kCancelled);
    }));
  }
  wait::cancel_runs();
  EXPECT_EQ(Executor::get(0).settle(nullptr), (std::vector<int>{0, 1}));
  EXPECT_EQ(Executor::get(0).settle(nullptr), std::vector<int>{0});
  for (int device = 0; device < 2; ++device) {
    EXPECT_EQ(outputs[device]->wait_for_end(), Buffer::State::kFailed);
    EXPECT_NO_THROW(Executor::get(device).drain());
  }
}

} // namespace
} // namespace torch_xla
