// Runs of a PJRT program.
#include "engine/pjrt/executable.h"

#include "core/metrics.h"
#include "stablehlo/writer.h"

namespace torch_xla::pjrt {

namespace {

constexpr const char* kRunning = "running a program";

} // namespace

Signature::Signature(const Graph& graph, const std::vector<bool>& donated, int num_partitions)
    : order(find_device_order(graph, num_partitions)),
      parameter_shardings(graph.parameter_shardings),
      output_shardings(graph.outputs.size()),
      wanted(settled_shardings(graph)) {
  for (ValueId v : graph.scalars) {
    scalars.push_back(graph.type(v).dtype);
  }
  for (ValueId v : graph.outputs) {
    outputs.push_back(graph.type(v));
  }
  aliases = choose_aliases(graph, donated, wanted);
}

bool Signature::choose_output_shardings(std::string_view program, std::string_view format) {
  std::vector<size_t> ranks;
  for (const Type& type : outputs) {
    ranks.push_back(type.dims.size());
  }
  if (auto told = read_output_shardings(program, format, ranks, order)) {
    output_shardings = *std::move(told);
    return true;
  }
  bool is_settled = true;
  for (size_t i = 0; i < wanted.size(); ++i) {
    is_settled = is_settled && wanted[i];
    output_shardings[i] = wanted[i].value_or(nullptr);
    wanted[i] = output_shardings[i];
  }
  return is_settled;
}

PjrtExecutable::PjrtExecutable(LoadedExecutableHandle loaded, Signature signature, std::string mlir, MemoryCounts& counts, int device)
    : loaded_(std::move(loaded)),
      signature_(std::move(signature)),
      mlir_(std::move(mlir)),
      counts_(counts),
      device_(device),
      arguments_(signature_.order.size()) {
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
  XLA_ASSERT(args.inputs.size() == signature_.aliases.size() && args.scalars.size() == signature_.scalars.size(), "arguments of a run");
  collect_arguments(args);
  std::vector<Tiles> results(signature_.outputs.size());
  std::vector<c::Event*> done;
  try {
    done = execute(results);
  } catch (...) {
    drop_deleted(args);
    throw;
  }
  args.inputs.clear();
  args.outputs.clear();
  for (size_t i = 0; i < results.size(); ++i) {
    args.outputs.push_back(
        std::make_shared<PjrtBuffer>(signature_.outputs[i], std::move(results[i]), counts_, device_, signature_.output_shardings[i]));
  }
  return [client = loaded_.client(), done = std::move(done)] { client->plugin().await_all(done, kRunning); };
}

void PjrtExecutable::drop_deleted(RunArgs& args) const {
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    if (args.donated[i] && signature_.aliases[i] >= 0) {
      auto query = c::make<c::BufferIsDeleted>();
      query.buffer = arguments_[0][i];
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

void PjrtExecutable::add_argument(const Tiles& tiles) {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    arguments_[i].push_back(tiles[static_cast<size_t>(signature_.order[i])].get());
  }
}

void PjrtExecutable::collect_arguments(const RunArgs& args) {
  for (std::vector<c::Buffer*>& list : arguments_) {
    list.clear();
  }
  kept_.clear();
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    auto& input = static_cast<PjrtBuffer&>(*args.inputs[i]);
    XLA_ASSERT(input.device() == device_, "a program of xla:", device_, " got a value of xla:", input.device());
    const ShardingRef& wanted = signature_.parameter_shardings[i];
    XLA_ASSERT(
        same_sharding(input.sharding(), wanted),
        str("a value that is sharded as ", sharding_text(input.sharding()), " for a parameter of ", sharding_text(wanted)));
    add_argument(input.tiles(client(), static_cast<int>(arguments_.size())));
    if (signature_.aliases[i] >= 0 && !args.donated[i]) {
      kept_.push_back(static_cast<int64_t>(i));
    }
  }
  for (size_t i = 0; i < args.scalars.size(); ++i) {
    add_argument(scalar_buffers(i, args.scalars[i]));
  }
}

const Tiles& PjrtExecutable::scalar_buffers(size_t i, uint64_t bits) {
  Scalar& scalar = scalars_[i];
  if (scalar.buffers.empty() || scalar.bits != bits) {
    scalar = {bits, {}};
    for (size_t device = 0; device < arguments_.size(); ++device) {
      // The low bytes are also the number in a narrower type.
      scalar.buffers.push_back(client().upload(device_ + static_cast<int>(device), {signature_.scalars[i], {}}, {}, &bits));
    }
  }
  return scalar.buffers;
}

std::vector<c::Event*> PjrtExecutable::execute(std::vector<Tiles>& results) {
  auto options = c::make<c::ExecuteOptions>();
  options.non_donatable_input_indices = kept_.data();
  options.num_non_donatable_input_indices = kept_.size();
  const size_t partitions = arguments_.size();
  std::vector<std::vector<c::Buffer*>> objects(partitions, std::vector<c::Buffer*>(results.size()));
  std::vector<c::Buffer* const*> argument_lists;
  std::vector<c::Buffer**> result_lists;
  for (size_t i = 0; i < partitions; ++i) {
    argument_lists.push_back(arguments_[i].data());
    result_lists.push_back(objects[i].data());
  }
  std::vector<c::Event*> done(partitions);
  auto args = c::make<c::LoadedExecutableExecute>();
  args.executable = loaded_.get();
  args.options = &options;
  args.argument_lists = argument_lists.data();
  args.num_devices = partitions;
  args.num_args = arguments_[0].size();
  args.output_lists = result_lists.data();
  args.device_complete_events = done.data();
  const int64_t start = metrics::now_ns();
  client().plugin().call(kLoadedExecutable_Execute, args, kRunning);
  if (partitions > 1) {
    static metrics::Metric time("ExecuteReplicatedTime", metrics::Unit::kTime); // the original's name
    time.add(static_cast<double>(metrics::now_ns() - start));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].resize(partitions);
    for (size_t k = 0; k < partitions; ++k) {
      results[i][static_cast<size_t>(signature_.order[k])] = {loaded_.client(), objects[k][i]};
    }
  }
  return done;
}

} // namespace torch_xla::pjrt
