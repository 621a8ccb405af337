// The entries of the table that deal with programs: compile, run, serialize, what they are.
#pragma once

#include "objects.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/pjrt/proto/compile_options.pb.h"

namespace xla {
// Declared in pjrt/mlir_to_hlo.h, which needs more of MLIR than the wheel has.
absl::Status ParseMlirModuleStringAndConvertToXlaComputation(
    absl::string_view mlir_module_str, XlaComputation& xla_computation, bool use_tuple_args, bool return_tuple);
} // namespace xla

namespace cpu_plugin {

inline absl::StatusOr<xla::CompileOptions> parse_options(const char* bytes, size_t size) {
  xla::CompileOptionsProto proto;
  if (!proto.ParseFromArray(bytes, static_cast<int>(size))) {
    return absl::InvalidArgumentError("the compile options are no CompileOptionsProto");
  }
  return xla::CompileOptions::FromProto(proto);
}

inline PJRT_LoadedExecutable* wrap(PJRT_Client* client, std::unique_ptr<xla::PjRtLoadedExecutable> executable) {
  return new PJRT_LoadedExecutable{std::move(executable), client};
}

inline PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
  if (absl::string_view(args->program->format, args->program->format_size) != "mlir") {
    return to_error(absl::UnimplementedError("this plugin compiles programs in the format \"mlir\" only"));
  }
  auto options = parse_options(args->compile_options, args->compile_options_size);
  RETURN_ERROR(options.status());
  xla::XlaComputation computation;
  RETURN_ERROR(xla::ParseMlirModuleStringAndConvertToXlaComputation(
      absl::string_view(args->program->code, args->program->code_size), computation, false, false));
  auto executable = args->client->client->CompileAndLoad(computation, *std::move(options));
  RETURN_ERROR(executable.status());
  args->executable = wrap(args->client, *std::move(executable));
  return nullptr;
}

inline PJRT_Error* deserialize(PJRT_Executable_DeserializeAndLoad_Args* args) {
  absl::string_view bytes(args->serialized_executable, args->serialized_executable_size);
  auto executable = args->client->client->LoadSerializedExecutable(bytes, std::nullopt, xla::LoadOptions());
  RETURN_ERROR(executable.status());
  args->loaded_executable = wrap(args->client, *std::move(executable));
  return nullptr;
}

inline PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  if (args->num_devices != 1) {
    return to_error(absl::UnimplementedError("this plugin runs programs on one device only"));
  }
  std::vector<std::vector<xla::PjRtBuffer*>> arguments(1);
  arguments[0].reserve(args->num_args);
  for (size_t i = 0; i < args->num_args; ++i) {
    arguments[0].push_back(args->argument_lists[0][i]->buffer.get());
  }
  xla::ExecuteOptions options;
  options.launch_id = args->options->launch_id;
  for (size_t i = 0; i < args->options->num_non_donatable_input_indices; ++i) {
    options.non_donatable_input_indices.insert(static_cast<int>(args->options->non_donatable_input_indices[i]));
  }
  std::optional<std::vector<xla::Future<>>> futures;
  if (args->device_complete_events) {
    futures.emplace();
  }
  auto results = args->executable->executable->Execute(arguments, options, futures);
  RETURN_ERROR(results.status());
  for (size_t i = 0; i < (*results)[0].size(); ++i) {
    args->output_lists[0][i] = new PJRT_Buffer{std::move((*results)[0][i]), args->executable->client};
  }
  if (args->device_complete_events) {
    args->device_complete_events[0] = new PJRT_Event{std::move((*futures)[0])};
  }
  return nullptr;
}

inline PJRT_Error* num_outputs(PJRT_Executable_NumOutputs_Args* args) {
  auto types = args->executable->executable->GetOutputElementTypes();
  RETURN_ERROR(types.status());
  args->num_outputs = (*types)[0].size();
  return nullptr;
}

inline PJRT_Error* serialize(PJRT_Executable_Serialize_Args* args) {
  auto bytes = args->executable->executable->SerializeExecutable();
  RETURN_ERROR(bytes.status());
  args->serialized_executable = new PJRT_SerializedExecutable{*std::move(bytes)};
  args->serialized_bytes = args->serialized_executable->bytes.data();
  args->serialized_bytes_size = args->serialized_executable->bytes.size();
  args->serialized_executable_deleter = [](PJRT_SerializedExecutable* serialized) { delete serialized; };
  return nullptr;
}

// Called twice: for the size, then with memory for the text.
inline PJRT_Error* optimized_program(PJRT_Executable_OptimizedProgram_Args* args) {
  static const char kFormat[] = "hlo_with_config";
  PJRT_Executable* executable = args->executable;
  if (executable->optimized.empty()) {
    auto modules = executable->executable->GetHloModules();
    RETURN_ERROR(modules.status());
    executable->optimized = (*modules)[0]->ToProtoWithConfig().SerializeAsString();
  }
  args->program->format = kFormat;
  args->program->format_size = sizeof(kFormat) - 1;
  args->program->code_size = executable->optimized.size();
  if (args->program->code) {
    std::memcpy(args->program->code, executable->optimized.data(), executable->optimized.size());
  }
  return nullptr;
}

inline PJRT_Error* memory_stats(PJRT_Executable_GetCompiledMemoryStats_Args* args) {
  auto stats = args->executable->executable->GetCompiledMemoryStats();
  RETURN_ERROR(stats.status());
  args->generated_code_size_in_bytes = stats->generated_code_size_in_bytes;
  args->argument_size_in_bytes = stats->argument_size_in_bytes;
  args->output_size_in_bytes = stats->output_size_in_bytes;
  args->alias_size_in_bytes = stats->alias_size_in_bytes;
  args->temp_size_in_bytes = stats->temp_size_in_bytes;
  args->host_generated_code_size_in_bytes = stats->host_generated_code_size_in_bytes;
  args->host_argument_size_in_bytes = stats->host_argument_size_in_bytes;
  args->host_output_size_in_bytes = stats->host_output_size_in_bytes;
  args->host_alias_size_in_bytes = stats->host_alias_size_in_bytes;
  args->host_temp_size_in_bytes = stats->host_temp_size_in_bytes;
  return nullptr;
}

inline void fill_executable_entries(PJRT_Api& api) {
  api.PJRT_Client_Compile = compile;
  api.PJRT_Executable_DeserializeAndLoad = deserialize;
  api.PJRT_LoadedExecutable_Execute = execute;
  api.PJRT_Executable_NumOutputs = num_outputs;
  api.PJRT_Executable_Serialize = serialize;
  api.PJRT_Executable_OptimizedProgram = optimized_program;
  api.PJRT_Executable_GetCompiledMemoryStats = memory_stats;
  api.PJRT_Executable_Name = [](PJRT_Executable_Name_Args* args) -> PJRT_Error* {
    args->executable_name = args->executable->name.data();
    args->executable_name_size = args->executable->name.size();
    return nullptr;
  };
  api.PJRT_LoadedExecutable_GetExecutable = [](PJRT_LoadedExecutable_GetExecutable_Args* args) -> PJRT_Error* {
    auto& executable = args->loaded_executable->executable;
    args->executable = new PJRT_Executable{executable, std::string(executable->name()), {}};
    return nullptr;
  };
  api.PJRT_Executable_Destroy = [](PJRT_Executable_Destroy_Args* args) -> PJRT_Error* {
    delete args->executable;
    return nullptr;
  };
  api.PJRT_LoadedExecutable_Destroy = [](PJRT_LoadedExecutable_Destroy_Args* args) -> PJRT_Error* {
    delete args->executable;
    return nullptr;
  };
}

} // namespace cpu_plugin
