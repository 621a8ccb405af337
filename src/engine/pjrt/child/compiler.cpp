// Calls of the plugin for a target and its programs.
#include "engine/pjrt/child/compiler.h"

#include <span>
#include <tuple>

namespace torch_xla::pjrt {
namespace {

constexpr char kFormat[] = "mlir";
constexpr const char* kDescribing = "describing the target";
constexpr const char* kCompiling = "compiling a program";

c::Program view_program(const std::string& mlir) {
  auto program = c::make<c::Program>();
  program.code = const_cast<char*>(mlir.data());
  program.code_size = mlir.size();
  program.format = kFormat;
  program.format_size = sizeof(kFormat) - 1;
  return program;
}

} // namespace

Compiler::Compiler(const OpenRequest& request) : plugin_(Plugin::load(request.plugin)) {
  request.by_client ? open_client(request) : open_topology(request);
}

void Compiler::open_topology(const OpenRequest& request) {
  std::vector<c::NamedValue> options = view_values(request.options);
  auto args = c::make<c::TopologyDescriptionCreate>();
  args.name = request.topology.data();
  args.name_size = request.topology.size();
  args.options = options.data();
  args.num_options = options.size();
  plugin_->call(kTopologyDescription_Create, args, "making the topology");
  topology_ = args.topology;
}

void Compiler::open_client(const OpenRequest& request) {
  std::vector<c::NamedValue> options = view_values(request.options);
  auto args = c::make<c::ClientCreate>();
  args.options = options.data();
  args.num_options = options.size();
  plugin_->call(kClient_Create, args, "creating a client of the PJRT plugin");
  client_ = args.client;
}

std::vector<c::DeviceDescription*> Compiler::descriptions() const {
  if (topology_) {
    auto args = c::make<c::TopologyDescriptionGetDeviceDescriptions>();
    args.topology = topology_;
    plugin_->call(kTopologyDescription_GetDeviceDescriptions, args, kDescribing);
    return {args.descriptions, args.descriptions + args.num_descriptions};
  }
  auto args = c::make<c::ClientAddressableDevices>();
  args.client = client_;
  plugin_->call(kClient_AddressableDevices, args, kDescribing);
  std::vector<c::DeviceDescription*> all;
  for (c::Device* device : std::span(args.devices, args.num_devices)) {
    auto get = c::make<c::DeviceGetDescription>();
    get.device = device;
    plugin_->call(kDevice_GetDescription, get, kDescribing);
    all.push_back(get.description);
  }
  return all;
}

TargetDevice Compiler::describe_device(c::DeviceDescription* description) const {
  auto id = c::make<c::DeviceDescriptionId>();
  id.description = description;
  plugin_->call(kDeviceDescription_Id, id, kDescribing);
  auto kind = c::make<c::DeviceDescriptionKind>();
  kind.description = description;
  plugin_->call(kDeviceDescription_Kind, kind, kDescribing);
  auto attributes = c::make<c::DeviceDescriptionAttributes>();
  attributes.description = description;
  plugin_->call_quietly(kDeviceDescription_Attributes, attributes);
  return {id.id, {kind.kind, kind.kind_size}, read_values(attributes.attributes, attributes.num_attributes)};
}

OpenReply Compiler::describe() const {
  OpenReply reply;
  reply.api_version = plugin_->version();
  auto read = [&](const auto& entry, auto args) {
    plugin_->call(entry, args, kDescribing);
    return std::string(args.text, args.text_size);
  };
  if (topology_) {
    auto args = c::make<c::TopologyDescriptionText>();
    args.topology = topology_;
    reply.platform = read(kTopologyDescription_PlatformName, args);
    reply.platform_version = read(kTopologyDescription_PlatformVersion, args);
  } else {
    auto args = c::make<c::ClientText>();
    args.client = client_;
    reply.platform = read(kClient_PlatformName, args);
    reply.platform_version = read(kClient_PlatformVersion, args);
  }
  for (c::DeviceDescription* description : descriptions()) {
    reply.devices.push_back(describe_device(description));
  }
  return reply;
}

Compiler::Program Compiler::compile_program(const CompileRequest& request) const {
  c::Program program = view_program(request.mlir);
  if (topology_) {
    auto args = c::make<c::Compile>();
    args.topology = topology_;
    args.program = &program;
    args.options = request.options.data();
    args.options_size = request.options.size();
    plugin_->call(kCompile, args, kCompiling);
    return {args.executable, nullptr};
  }
  auto args = c::make<c::ClientCompile>();
  args.client = client_;
  args.program = &program;
  args.options = request.options.data();
  args.options_size = request.options.size();
  plugin_->call(kClient_Compile, args, kCompiling);
  auto get = c::make<c::LoadedExecutableGetExecutable>();
  get.loaded = args.executable;
  plugin_->call(kLoadedExecutable_GetExecutable, get, kCompiling);
  return {get.executable, args.executable};
}

void Compiler::destroy(const Program& program) const {
  auto args = c::make<c::ExecutableDestroy>();
  args.executable = program.executable;
  plugin_->call_quietly(kExecutable_Destroy, args);
  if (program.loaded) {
    auto loaded = c::make<c::LoadedExecutableDestroy>();
    loaded.executable = program.loaded;
    plugin_->call_quietly(kLoadedExecutable_Destroy, loaded);
  }
}

CompileReply Compiler::compile(const CompileRequest& request) const {
  Program program = compile_program(request);
  CompileReply reply;
  auto outputs = c::make<c::ExecutableNumOutputs>();
  outputs.executable = program.executable;
  plugin_->call(kExecutable_NumOutputs, outputs, "counting a program's outputs");
  reply.num_outputs = outputs.num_outputs;
  read_memory(program.executable, reply);
  read_costs(program.executable, reply);
  std::tie(reply.optimized, reply.format) = plugin_->optimized_program(program.executable);
  destroy(program);
  return reply;
}

// Plugins may have each of the two below.
void Compiler::read_memory(c::Executable* executable, CompileReply& reply) const {
  auto args = c::make<c::ExecutableGetCompiledMemoryStats>();
  args.executable = executable;
  try {
    plugin_->call(kExecutable_GetCompiledMemoryStats, args, "asking for a program's memory");
  } catch (const UserError&) {
    return;
  }
  reply.code_bytes = args.generated_code_size;
  reply.argument_bytes = args.argument_size;
  reply.output_bytes = args.output_size;
  reply.aliased_bytes = args.alias_size;
  reply.scratch_bytes = args.temp_size;
  reply.peak_bytes = args.peak_memory > 0 ? args.peak_memory : -1; // older plugins leave it
}

void Compiler::read_costs(c::Executable* executable, CompileReply& reply) const {
  auto args = c::make<c::ExecutableGetCostAnalysis>();
  args.executable = executable;
  try {
    plugin_->call(kExecutable_GetCostAnalysis, args, "asking for a program's cost");
  } catch (const UserError&) {
    return;
  }
  reply.costs = read_values(args.properties, args.num_properties);
}

} // namespace torch_xla::pjrt
