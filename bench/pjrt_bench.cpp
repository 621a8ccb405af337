// What the PJRT engine adds to a plugin's own execute call: a run of x + 1 on f32[8], through the engine and through the C API alone.
// Usage: pjrt_bench PLUGIN, as tools/compilers/wheels.py prints it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "engine/pjrt/executable.h"

namespace torch_xla::pjrt {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRuns = 20000;
const Type kType{DType::F32, {8}};
const char kProgram[] = R"(module @program {
  func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.constant dense<1.0> : tensor<8xf32>
    %1 = stablehlo.add %x, %0 : tensor<8xf32>
    return %1 : tensor<8xf32>
  }
})";

// Microseconds of a call, median.
template <typename Body>
double time_call(Body body) {
  std::vector<double> times;
  for (int i = 0; i < kRuns; ++i) {
    Clock::time_point start = Clock::now();
    body();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

void run_api(const Client& client, const LoadedExecutableHandle& loaded, c::Buffer* input) {
  c::Buffer* const* arguments = &input;
  c::Buffer* output = nullptr;
  c::Buffer** outputs = &output;
  c::Event* done = nullptr;
  auto options = c::make<c::ExecuteOptions>();
  auto args = c::make<c::LoadedExecutableExecute>();
  args.executable = loaded.get();
  args.options = &options;
  args.argument_lists = &arguments;
  args.num_devices = 1;
  args.num_args = 1;
  args.output_lists = &outputs;
  args.device_complete_events = &done;
  client.plugin().call(kLoadedExecutable_Execute, args, "running");
  client.plugin().await(done, "running");
  auto destroy = c::make<c::BufferDestroy>();
  destroy.buffer = output;
  client.plugin().call(kBuffer_Destroy, destroy, "destroying");
}

void run_engine(PjrtExecutable& executable, const EngineBufferRef& input) {
  RunArgs args;
  args.inputs = {input};
  args.donated = {false};
  executable.run(args);
}

void compare(const char* path) {
  ClientRef client = Client::create(Plugin::load(path));
  MemoryCount count;
  const float data[8] = {};
  auto input = std::make_shared<PjrtBuffer>(kType, client->upload(kType, {}, data), count);
  Graph graph;
  graph.outputs = {graph.add_parameter(kType)};
  PjrtExecutable executable(client->compile(kProgram), Signature(graph, {-1}), kProgram, count);
  LoadedExecutableHandle loaded = client->compile(kProgram);
  for (int repeat = 0; repeat < 3; ++repeat) {
    double api = time_call([&] { run_api(*client, loaded, input->handle().get()); });
    double engine = time_call([&] { run_engine(executable, input); });
    std::printf("C API %.2f us, engine %.2f us, added %.2f us\n", api, engine, engine - api);
  }
}

} // namespace
} // namespace torch_xla::pjrt

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: pjrt_bench PLUGIN\n");
    return 2;
  }
  torch_xla::pjrt::compare(argv[1]);
  return 0;
}
