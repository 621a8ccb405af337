// A PJRT plugin for tests, of two devices over host memory, that fails when told to, and a compiler for the topologies "1" to "9". A
// program's outputs are copies of the first argument of their size, else zeros.
//
// FAKE_PJRT_TABLE in the environment spoils the table: null, empty, old (version), hole (an entry that is needed), short (an old table).
// FAKE_PJRT_PLATFORM is the platform that it says it is. FAKE_PJRT_SLOW is the number of seconds that opening the device takes.
// A compile for a topology crashes for a program with the text FAKE_PJRT_CRASH, and exceeds the memory for one with FAKE_PJRT_REFUSE.
// fake_pjrt_fail(where, code) makes the next call of one kind fail: create, upload, download, compile, execute, complete (the run fails
// after it has started), outputs (the program has too many), serialize, load.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/pjrt/c_api_table.h"

namespace torch_xla::pjrt::c {

struct Error {
  ErrorCode code;
  std::string message;
};
struct Event {
  Error* error = nullptr;
};
struct DeviceDescription {
  int id = 0;
};
struct TopologyDescription {
  std::vector<DeviceDescription> devices;
  std::vector<DeviceDescription*> list;
  std::string options;
};
struct Device {
  DeviceDescription description;
};
struct Client {
  Device first{{7}}; // the numbers are the plugin's own
  Device second{{8}};
  Device* devices[2] = {&first, &second};
};
struct Buffer {
  std::vector<char> bytes;
  int device; // its number
};
struct Executable {
  size_t num_outputs = 0;
  std::vector<size_t> outputs; // bytes of each
  int device = 0; // its number
  std::string optimized; // of a compile for a topology
};
struct LoadedExecutable {
  Executable executable;
};
struct SerializedExecutable {
  std::string bytes;
};

namespace {

std::mutex mutex;
std::string fail_where; // guarded by mutex
ErrorCode fail_code = ErrorCode::kInternal; // guarded by mutex
int live_objects = 0; // buffers, programs and clients; guarded by mutex
std::string options; // of the last client; guarded by mutex

void count(int change) {
  std::lock_guard<std::mutex> lock(mutex);
  live_objects += change;
}

// The error that was asked for here, once.
Error* take_error(const char* where) {
  std::lock_guard<std::mutex> lock(mutex);
  if (fail_where != where) {
    return nullptr;
  }
  fail_where.clear();
  return new Error{fail_code, std::string("the fake plugin was told to fail at ") + where};
}

size_t bytes_of(const std::string& type) {
  static const std::pair<const char*, size_t> kSizes[] = {{"i1", 1}, {"i8", 1}, {"f16", 2}, {"f32", 4}, {"i32", 4}, {"f64", 8}, {"i64", 8}};
  size_t bytes = 1;
  size_t at = 0;
  for (size_t x; (x = type.find('x', at)) != std::string::npos && std::isdigit(type[at]); at = x + 1) {
    bytes *= std::stoul(type.substr(at, x - at));
  }
  for (auto [name, size] : kSizes) {
    if (type.compare(at, std::string::npos, name) == 0) {
      return bytes * size;
    }
  }
  return 0;
}

// Sizes of the results in the signature of @main, which is one line.
std::vector<size_t> parse_outputs(const std::string& mlir) {
  std::vector<size_t> sizes;
  size_t main = mlir.find("@main");
  size_t end = mlir.find('\n', main);
  for (size_t at = mlir.find("->", main); (at = mlir.find("tensor<", at)) < end; ++at) {
    size_t first = at + std::strlen("tensor<");
    sizes.push_back(bytes_of(mlir.substr(first, mlir.find('>', first) - first)));
  }
  return sizes;
}

void error_destroy(ErrorDestroy* args) {
  delete args->error;
}

void error_message(ErrorMessage* args) {
  args->message = args->error->message.data();
  args->message_size = args->error->message.size();
}

Error* error_get_code(ErrorGetCode* args) {
  args->code = args->error->code;
  return nullptr;
}

Error* event_await(EventArgs* args) {
  return std::exchange(args->event->error, nullptr);
}

Error* event_destroy(EventArgs* args) {
  delete args->event->error;
  delete args->event;
  return nullptr;
}

std::string option_text(const NamedValue& value) {
  switch (value.type) {
    case NamedValueType::kString:
      return "'" + std::string(value.string_value, value.value_size) + "'";
    case NamedValueType::kInt64:
      return std::to_string(value.int64_value);
    case NamedValueType::kInt64List: {
      std::string text = "[";
      for (size_t i = 0; i < value.value_size; ++i) {
        text += (i ? ", " : "") + std::to_string(value.int64_array_value[i]);
      }
      return text + "]";
    }
    case NamedValueType::kFloat:
      return std::to_string(value.float_value);
    case NamedValueType::kBool:
      return value.bool_value ? "True" : "False";
  }
  return "?";
}

std::string options_text(const NamedValue* values, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += (i ? " " : "") + std::string(values[i].name, values[i].name_size) + "=" + option_text(values[i]);
  }
  return text;
}

Error* description_attributes(DeviceDescriptionAttributes* args) {
  static constexpr int64_t kCoords[] = {1, 2};
  static const NamedValue attributes = [] {
    auto value = make<NamedValue>();
    value.name = "coords";
    value.name_size = 6;
    value.type = NamedValueType::kInt64List;
    value.int64_array_value = kCoords;
    value.value_size = 2;
    return value;
  }();
  args->attributes = &attributes;
  args->num_attributes = 1;
  return nullptr;
}

Error* client_create(ClientCreate* args) {
  if (const char* seconds = std::getenv("FAKE_PJRT_SLOW")) {
    std::this_thread::sleep_for(std::chrono::seconds(std::atoi(seconds)));
  }
  if (Error* error = take_error("create")) {
    return error;
  }
  std::lock_guard<std::mutex> lock(mutex);
  options = options_text(args->options, args->num_options);
  ++live_objects;
  args->client = new Client;
  return nullptr;
}

Error* client_destroy(ClientDestroy* args) {
  count(-1);
  delete args->client;
  return nullptr;
}

const char* platform() {
  const char* chosen = std::getenv("FAKE_PJRT_PLATFORM");
  return chosen ? chosen : "fake";
}

Error* client_text(ClientText* args) {
  args->text = platform();
  args->text_size = std::strlen(args->text);
  return nullptr;
}

Error* client_devices(ClientAddressableDevices* args) {
  args->devices = args->client->devices;
  args->num_devices = 2;
  return nullptr;
}

Error* device_description(DeviceGetDescription* args) {
  args->description = &args->device->description;
  return nullptr;
}

Error* description_id(DeviceDescriptionId* args) {
  args->id = args->description->id;
  return nullptr;
}

Error* description_kind(DeviceDescriptionKind* args) {
  args->kind = "fake";
  args->kind_size = 4;
  return nullptr;
}

Buffer* make_buffer(std::vector<char> bytes, int device) {
  count(1);
  return new Buffer{std::move(bytes), device};
}

size_t item_bytes(BufferType type) {
  switch (type) {
    case BufferType::kPred:
    case BufferType::kS8:
    case BufferType::kU8:
      return 1;
    case BufferType::kS64:
    case BufferType::kF64:
      return 8;
    default:
      return 4;
  }
}

Error* upload(ClientBufferFromHostBuffer* args) {
  if (Error* error = take_error("upload")) {
    return error;
  }
  size_t bytes = item_bytes(args->type);
  for (size_t d = 0; d < args->num_dims; ++d) {
    bytes *= static_cast<size_t>(args->dims[d]);
  }
  auto data = static_cast<const char*>(args->data);
  args->buffer = make_buffer({data, data + bytes}, args->device->description.id);
  args->done_with_host_buffer = new Event;
  return nullptr;
}

Error* download(BufferToHostBuffer* args) {
  if (Error* error = take_error("download")) {
    return error;
  }
  std::memcpy(args->dst, args->src->bytes.data(), std::min(args->dst_size, args->src->bytes.size()));
  args->event = new Event;
  return nullptr;
}

Error* buffer_destroy(BufferDestroy* args) {
  count(-1);
  delete args->buffer;
  return nullptr;
}

Error* compile(ClientCompile* args) {
  if (Error* error = take_error("compile")) {
    return error;
  }
  count(1);
  auto* loaded = new LoadedExecutable;
  loaded->executable.outputs = parse_outputs({args->program->code, args->program->code_size});
  loaded->executable.num_outputs = loaded->executable.outputs.size();
  if (Error* error = take_error("outputs")) {
    delete error;
    ++loaded->executable.num_outputs;
  }
  loaded->executable.device = args->options[args->options_size - 1]; // replica_device_ids end the options
  args->executable = loaded;
  return nullptr;
}

Error* loaded_destroy(LoadedExecutableDestroy* args) {
  count(-1);
  delete args->executable;
  return nullptr;
}

Error* get_executable(LoadedExecutableGetExecutable* args) {
  args->executable = &args->loaded->executable;
  return nullptr;
}

// The device and the bytes of each output, as numbers.
Error* serialize(ExecutableSerialize* args) {
  if (Error* error = take_error("serialize")) {
    return error;
  }
  auto* serialized = new SerializedExecutable;
  serialized->bytes = std::to_string(args->executable->device) + " ";
  for (size_t bytes : args->executable->outputs) {
    serialized->bytes += std::to_string(bytes) + " ";
  }
  args->serialized = serialized;
  args->bytes = serialized->bytes.data();
  args->bytes_size = serialized->bytes.size();
  args->deleter = [](SerializedExecutable* done) { delete done; };
  return nullptr;
}

Error* load(ExecutableDeserializeAndLoad* args) {
  if (Error* error = take_error("load")) {
    return error;
  }
  count(1);
  auto* loaded = new LoadedExecutable;
  std::istringstream numbers(std::string(args->bytes, args->bytes_size));
  numbers >> loaded->executable.device;
  for (size_t bytes; numbers >> bytes;) {
    loaded->executable.outputs.push_back(bytes);
  }
  loaded->executable.num_outputs = loaded->executable.outputs.size();
  args->executable = loaded;
  return nullptr;
}

// That of a client is part of the loaded one.
Error* executable_destroy(ExecutableDestroy* args) {
  if (!args->executable->optimized.empty()) {
    delete args->executable;
  }
  return nullptr;
}

// ---- Compiling for topologies ----
Error* topology_create(TopologyDescriptionCreate* args) {
  const std::string name(args->name, args->name_size);
  if (name.size() != 1 || name < "1" || name > "9") {
    return new Error{ErrorCode::kInvalidArgument, "no topology is named " + name};
  }
  auto* topology = new TopologyDescription; // lives as long as the process
  topology->options = options_text(args->options, args->num_options);
  for (int device = 0; device < name[0] - '0'; ++device) {
    topology->devices.push_back({device});
  }
  for (DeviceDescription& device : topology->devices) {
    topology->list.push_back(&device);
  }
  args->topology = topology;
  return nullptr;
}

Error* topology_platform(TopologyDescriptionText* args) {
  args->text = platform();
  args->text_size = std::strlen(args->text);
  return nullptr;
}

// Its version: the options.
Error* topology_version(TopologyDescriptionText* args) {
  args->text = args->topology->options.c_str();
  args->text_size = args->topology->options.size();
  return nullptr;
}

Error* topology_devices(TopologyDescriptionGetDeviceDescriptions* args) {
  args->descriptions = args->topology->list.data();
  args->num_descriptions = args->topology->list.size();
  return nullptr;
}

bool has_text_of(const std::string& mlir, const char* variable) {
  const char* text = std::getenv(variable);
  return text && mlir.find(text) != std::string::npos;
}

Error* compile_for_topology(Compile* args) {
  const std::string mlir(args->program->code, args->program->code_size);
  if (has_text_of(mlir, "FAKE_PJRT_CRASH")) {
    std::fputs("the fake compiler crashes now\n", stderr);
    std::raise(SIGSEGV);
  }
  if (has_text_of(mlir, "FAKE_PJRT_REFUSE")) {
    return new Error{ErrorCode::kResourceExhausted, "the program exceeds the memory"};
  }
  auto* executable = new Executable;
  executable->outputs = parse_outputs(mlir);
  executable->num_outputs = executable->outputs.size();
  executable->device = args->options[args->options_size - 1];
  executable->optimized = "optimized: " + mlir;
  args->executable = executable;
  return nullptr;
}

Error* memory_stats(ExecutableGetCompiledMemoryStats* args) {
  if (args->executable->optimized.empty()) {
    return new Error{ErrorCode::kUnimplemented, "a client's programs have none"};
  }
  args->generated_code_size = 1000;
  args->argument_size = 300;
  for (size_t bytes : args->executable->outputs) {
    args->output_size += static_cast<int64_t>(bytes);
  }
  args->alias_size = 4;
  args->temp_size = 50;
  return nullptr;
}

Error* cost_analysis(ExecutableGetCostAnalysis* args) {
  static const std::array<NamedValue, 2> costs = [] {
    std::array<NamedValue, 2> values{make<NamedValue>(), make<NamedValue>()};
    values[0].name = "flops";
    values[0].name_size = 5;
    values[0].float_value = 4e9F;
    values[1].name = "bytes accessed";
    values[1].name_size = 14;
    values[1].float_value = 2e6F;
    for (NamedValue& value : values) {
      value.type = NamedValueType::kFloat;
      value.value_size = 1;
    }
    return values;
  }();
  args->properties = costs.data();
  args->num_properties = costs.size();
  return nullptr;
}

Error* optimized_program(ExecutableOptimizedProgram* args) {
  const std::string& text = args->executable->optimized;
  args->program->code_size = text.size();
  args->program->format = "text";
  args->program->format_size = 4;
  if (args->program->code) {
    std::memcpy(args->program->code, text.data(), text.size());
  }
  return nullptr;
}

Error* num_outputs(ExecutableNumOutputs* args) {
  args->num_outputs = args->executable->num_outputs;
  return nullptr;
}

Error* execute(LoadedExecutableExecute* args) {
  if (Error* error = take_error("execute")) {
    return error;
  }
  const auto& [num_outputs, outputs, device, optimized] = args->executable->executable;
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::vector<char> bytes(outputs[i]);
    for (size_t a = 0; a < args->num_args; ++a) {
      if (args->argument_lists[0][a]->device != device) {
        return new Error{ErrorCode::kInvalidArgument, "an argument on another device than the program"};
      }
      if (args->argument_lists[0][a]->bytes.size() == bytes.size()) {
        bytes = args->argument_lists[0][a]->bytes;
        break;
      }
    }
    args->output_lists[0][i] = make_buffer(std::move(bytes), device);
  }
  args->device_complete_events[0] = new Event{take_error("complete")};
  return nullptr;
}

template <typename Args>
void set(Api& api, size_t position, Error* (*entry)(Args*)) {
  api.entries[position] = reinterpret_cast<AnyEntry>(entry);
}

void fill_table(Api& api) {
  api.entries[kErrorDestroyPosition] = reinterpret_cast<AnyEntry>(&error_destroy);
  api.entries[kErrorMessagePosition] = reinterpret_cast<AnyEntry>(&error_message);
  set(api, 2, error_get_code);
  set(api, 5, event_destroy);
  set(api, 8, event_await);
  set(api, 10, client_create);
  set(api, 11, client_destroy);
  set(api, 12, client_text);
  set(api, 14, client_text);
  set(api, 16, client_devices);
  set(api, 20, compile);
  set(api, 22, upload);
  set(api, 23, description_id);
  set(api, 25, description_attributes);
  set(api, 26, description_kind);
  set(api, 29, device_description);
  set(api, 40, executable_destroy);
  set(api, 44, num_outputs);
  set(api, 46, cost_analysis);
  set(api, 48, optimized_program);
  set(api, 49, serialize);
  set(api, 50, loaded_destroy);
  set(api, 51, get_executable);
  set(api, 55, execute);
  set(api, 56, load);
  set(api, 58, buffer_destroy);
  set(api, 70, download);
  set(api, 82, topology_create);
  set(api, 84, topology_platform);
  set(api, 85, topology_version);
  set(api, 86, topology_devices);
  set(api, 89, compile_for_topology);
  set(api, 96, memory_stats);
}

const Api* make_table(const std::string& fault) {
  if (fault == "null") {
    return nullptr;
  }
  auto* api = new Api{}; // one for each load: few, and read as long as the process lives
  api->head.struct_size = sizeof(Api);
  api->version = {{kStructSize<ApiVersion>, nullptr}, 0, fault == "old" ? 1 : 90};
  fill_table(*api);
  if (fault == "hole") {
    api->entries[20] = nullptr;
  } else if (fault == "short") {
    api->head.struct_size = offsetof(Api, entries) + 50 * sizeof(AnyEntry);
  } else if (fault == "empty") {
    api->head.struct_size = offsetof(Api, entries);
  }
  return api;
}

} // namespace
} // namespace torch_xla::pjrt::c

extern "C" __attribute__((visibility("default"))) const torch_xla::pjrt::c::Api* GetPjrtApi() {
  const char* fault = std::getenv("FAKE_PJRT_TABLE");
  return torch_xla::pjrt::c::make_table(fault ? fault : "");
}

extern "C" __attribute__((visibility("default"))) void fake_pjrt_fail(const char* where, int code) {
  std::lock_guard<std::mutex> lock(torch_xla::pjrt::c::mutex);
  torch_xla::pjrt::c::fail_where = where;
  torch_xla::pjrt::c::fail_code = static_cast<torch_xla::pjrt::c::ErrorCode>(code);
}

// Those that the last client was made with: "name=value name=value".
extern "C" __attribute__((visibility("default"))) const char* fake_pjrt_options() {
  return torch_xla::pjrt::c::options.c_str();
}

extern "C" __attribute__((visibility("default"))) int fake_pjrt_live_objects() {
  std::lock_guard<std::mutex> lock(torch_xla::pjrt::c::mutex);
  return torch_xla::pjrt::c::live_objects;
}
