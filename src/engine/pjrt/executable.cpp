// Runs of a PJRT program.
#include "engine/pjrt/executable.h"

namespace torch_xla::pjrt {

namespace {

constexpr const char* kRunning = "running a program";

} // namespace

Signature::Signature(const Graph& graph, std::vector<int32_t> aliases)
    : num_parameters(graph.parameters.size()), aliases(std::move(aliases)) {
  for (ValueId v : graph.scalars) {
    scalars.push_back(graph.type(v).dtype);
  }
  for (ValueId v : graph.outputs) {
    outputs.push_back(graph.type(v));
  }
}

PjrtExecutable::PjrtExecutable(LoadedExecutableHandle loaded, Signature signature, std::string mlir, MemoryCount& count)
    : loaded_(std::move(loaded)), signature_(std::move(signature)), mlir_(std::move(mlir)), count_(count) {
  ExecutableHandle executable = client().executable_of(loaded_);
  check_outputs(executable);
  read_scratch(executable);
  scalars_.resize(signature_.scalars.size());
}

void PjrtExecutable::check_outputs(const ExecutableHandle& executable) const {
  auto args = c::make<c::ExecutableNumOutputs>();
  args.executable = executable.get();
  client().plugin().call(kExecutable_NumOutputs, args, "counting a program's outputs");
  XLA_CHECK(
      args.num_outputs == signature_.outputs.size(),
      "the PJRT plugin compiled a program of ",
      signature_.outputs.size(),
      " outputs to one of ",
      args.num_outputs);
}

void PjrtExecutable::read_scratch(const ExecutableHandle& executable) {
  auto args = c::make<c::ExecutableGetCompiledMemoryStats>();
  args.executable = executable.get();
  if (client().plugin().has(kExecutable_GetCompiledMemoryStats)) {
    client().plugin().call_quietly(kExecutable_GetCompiledMemoryStats, args);
  }
  scratch_bytes_ = args.temp_size;
  code_bytes_ = args.generated_code_size > 0 ? args.generated_code_size : -1;
}

std::function<void()> PjrtExecutable::start(RunArgs& args) {
  std::lock_guard<std::mutex> lock(mutex_);
  XLA_ASSERT(args.inputs.size() == signature_.num_parameters && args.scalars.size() == signature_.scalars.size(), "arguments of a run");
  collect_arguments(args);
  std::vector<BufferHandle> results;
  c::Event* done = nullptr;
  try {
    done = execute(results);
  } catch (...) {
    drop_deleted(args);
    throw;
  }
  args.inputs.clear();
  args.outputs.clear();
  for (size_t i = 0; i < results.size(); ++i) {
    args.outputs.push_back(std::make_shared<PjrtBuffer>(signature_.outputs[i], std::move(results[i]), count_));
  }
  return [client = loaded_.client(), done] { client->plugin().await(done, kRunning); };
}

void PjrtExecutable::drop_deleted(RunArgs& args) const {
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    if (args.donated[i] && signature_.aliases[i] >= 0) {
      auto query = c::make<c::BufferIsDeleted>();
      query.buffer = static_cast<const PjrtBuffer&>(*args.inputs[i]).handle().get();
      query.is_deleted = true; // if the plugin does not answer
      if (client().plugin().has(kBuffer_IsDeleted)) {
        client().plugin().call_quietly(kBuffer_IsDeleted, query);
      }
      if (query.is_deleted) {
        args.inputs[i].reset();
      }
    }
  }
}

void PjrtExecutable::collect_arguments(const RunArgs& args) {
  arguments_.clear();
  kept_.clear();
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    int device = args.inputs[i]->device();
    XLA_ASSERT(device == count_.device(), "a program of xla:", count_.device(), " got a value of xla:", device);
    arguments_.push_back(static_cast<const PjrtBuffer&>(*args.inputs[i]).handle().get());
    if (signature_.aliases[i] >= 0 && !args.donated[i]) {
      kept_.push_back(static_cast<int64_t>(i));
    }
  }
  for (size_t i = 0; i < args.scalars.size(); ++i) {
    arguments_.push_back(scalar_buffer(i, args.scalars[i]));
  }
}

c::Buffer* PjrtExecutable::scalar_buffer(size_t i, uint64_t bits) {
  Scalar& scalar = scalars_[i];
  if (!scalar.buffer.get() || scalar.bits != bits) {
    // The low bytes are also the number in a narrower type.
    scalar = {bits, client().upload(count_.device(), {signature_.scalars[i], {}}, {}, &bits)};
  }
  return scalar.buffer.get();
}

c::Event* PjrtExecutable::execute(std::vector<BufferHandle>& results) {
  auto options = c::make<c::ExecuteOptions>();
  options.non_donatable_input_indices = kept_.data();
  options.num_non_donatable_input_indices = kept_.size();
  std::vector<c::Buffer*> objects(signature_.outputs.size());
  c::Buffer* const* argument_list = arguments_.data();
  c::Buffer** result_list = objects.data();
  c::Event* done = nullptr;
  auto args = c::make<c::LoadedExecutableExecute>();
  args.executable = loaded_.get();
  args.options = &options;
  args.argument_lists = &argument_list;
  args.num_devices = 1;
  args.num_args = arguments_.size();
  args.output_lists = &result_list;
  args.device_complete_events = &done;
  client().plugin().call(kLoadedExecutable_Execute, args, kRunning);
  for (c::Buffer* object : objects) {
    results.emplace_back(loaded_.client(), object);
  }
  return done;
}

} // namespace torch_xla::pjrt
