// The client: creation, description, compilation.
#include "engine/pjrt/client.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "core/env.h"
#include "engine/pjrt/compile_options.h"
#include "engine/pjrt/slow_answer.h"

namespace torch_xla::pjrt {
namespace {

constexpr char kFormat[] = "mlir";

struct ValueText {
  std::string operator()(const std::string& text) const {
    return text;
  }
  std::string operator()(const std::vector<int64_t>& list) const {
    std::string text;
    for (int64_t v : list) {
      text += str(v, ",");
    }
    return text;
  }
  template <typename T>
  std::string operator()(T v) const {
    return std::to_string(v);
  }
};

// The lines of /proc/cpuinfo that identify the kind of processor; empty without that file.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    if (line.starts_with("model name") || line.starts_with("flags") || line.starts_with("Features")) {
      text += line + "\n";
    }
  }
  return text;
}

} // namespace

ClientRef Client::create(PluginRef plugin, const NamedValues& options) {
  std::shared_ptr<Client> client(new Client(std::move(plugin)));
  client->open(options);
  return client;
}

void Client::open(const NamedValues& options) {
  std::vector<c::NamedValue> values = view_values(options);
  auto create = c::make<c::ClientCreate>();
  create.options = values.data();
  create.num_options = values.size();
  {
    const SlowAnswer slow(str("the PJRT plugin ", plugin_->path(), " to open its device; is the device there and free?"));
    plugin_->call(kClient_Create, create, "creating a client of the PJRT plugin");
  }
  client_ = create.client;
  auto devices = c::make<c::ClientAddressableDevices>();
  devices.client = client_;
  plugin_->call(kClient_AddressableDevices, devices, "listing the devices of the PJRT plugin");
  XLA_CHECK(devices.num_devices > 0, "the PJRT plugin ", plugin_->path(), " found no device");
  devices_.assign(devices.devices, devices.devices + std::min<size_t>(devices.num_devices, kMaxDevices));
  platform_name_ = read_text(kClient_PlatformName);
  platform_version_ = read_text(kClient_PlatformVersion);
}

Client::~Client() {
  if (client_) {
    auto args = c::make<c::ClientDestroy>();
    args.client = client_;
    plugin_->call_quietly(kClient_Destroy, args);
  }
}

std::string Client::read_text(const Entry<c::ClientText>& entry) const {
  auto args = c::make<c::ClientText>();
  args.client = client_;
  plugin_->call(entry, args, "asking the PJRT plugin for its platform");
  return {args.text, args.text_size};
}

c::DeviceDescription* Client::description(int device) const {
  auto args = c::make<c::DeviceGetDescription>();
  args.device = devices_[device];
  plugin_->call(kDevice_GetDescription, args, "asking for the device's description");
  return args.description;
}

std::string Client::device_kind(int device) const {
  auto kind = c::make<c::DeviceDescriptionKind>();
  kind.description = description(device);
  plugin_->call(kDeviceDescription_Kind, kind, "asking for the device's kind");
  return {kind.kind, kind.kind_size};
}

NamedValues Client::device_attributes(int device) const {
  auto args = c::make<c::DeviceDescriptionAttributes>();
  args.description = description(device);
  if (plugin_->has(kDeviceDescription_Attributes)) {
    plugin_->call(kDeviceDescription_Attributes, args, "asking for the device's attributes");
  }
  return read_values(args.attributes, args.num_attributes);
}

std::string Client::compile_options(int device, const Dims& order, const NamedValues& custom) const {
  std::vector<int> ids;
  for (int64_t i : order) {
    auto args = c::make<c::DeviceDescriptionId>();
    args.description = description(device + static_cast<int>(i));
    plugin_->call(kDeviceDescription_Id, args, "asking for the device's number");
    ids.push_back(args.id);
  }
  return pjrt::compile_options(platform_name_, ids, custom);
}

std::string Client::fingerprint(int device) const {
  std::string parts = compile_options(device) + "\n";
  parts +=
      str(platform_name_,
          "\n",
          platform_version_,
          "\n",
          device_kind(device),
          "\n",
          plugin_->version(),
          "\n",
          env::text(env::variable("XLA_FLAGS")));
  for (const auto& [name, value] : plugin_->attributes()) {
    parts += str("\n", name, "=", std::visit(ValueText(), value));
  }
  std::error_code ignored; // the path may be a name that the loader has looked up
  parts += str("\n", plugin_->path(), "\n", std::filesystem::file_size(plugin_->path(), ignored), "\n");
  parts += str(std::filesystem::last_write_time(plugin_->path(), ignored).time_since_epoch().count(), "\n", processor());
  return parts;
}

LoadedExecutableHandle Client::compile(int device, const Dims& order, const std::string& mlir, const NamedValues& custom) const {
  std::string options = compile_options(device, order, custom);
  auto program = c::make<c::Program>();
  program.code = const_cast<char*>(mlir.data());
  program.code_size = mlir.size();
  program.format = kFormat;
  program.format_size = sizeof(kFormat) - 1;
  auto args = c::make<c::ClientCompile>();
  args.client = client_;
  args.program = &program;
  args.options = options.data();
  args.options_size = options.size();
  plugin_->call(kClient_Compile, args, "compiling a program");
  return {shared_from_this(), args.executable};
}

ExecutableHandle Client::executable_of(const LoadedExecutableHandle& loaded) const {
  auto args = c::make<c::LoadedExecutableGetExecutable>();
  args.loaded = loaded.get();
  plugin_->call(kLoadedExecutable_GetExecutable, args, "asking for a program's description");
  return {shared_from_this(), args.executable};
}

std::string Client::serialize(const LoadedExecutableHandle& loaded) const {
  if (!plugin_->has(kExecutable_Serialize) || !plugin_->has(kExecutable_DeserializeAndLoad)) {
    return "";
  }
  ExecutableHandle executable = executable_of(loaded);
  auto args = c::make<c::ExecutableSerialize>();
  args.executable = executable.get();
  plugin_->call(kExecutable_Serialize, args, "serializing a program");
  std::string bytes(args.bytes, args.bytes_size);
  args.deleter(args.serialized);
  return bytes;
}

LoadedExecutableHandle Client::load(const std::string& bytes) const {
  auto args = c::make<c::ExecutableDeserializeAndLoad>();
  args.client = client_;
  args.bytes = bytes.data();
  args.bytes_size = bytes.size();
  plugin_->call(kExecutable_DeserializeAndLoad, args, "loading a serialized program");
  return {shared_from_this(), args.executable};
}

bool Client::read_memory(int device, EngineMemoryInfo& info) const {
  if (!plugin_->has(kDevice_MemoryStats)) {
    return false;
  }
  auto args = c::make<c::DeviceMemoryStats>();
  args.device = devices_[device];
  try {
    plugin_->call(kDevice_MemoryStats, args, "asking for the device's memory");
  } catch (const UserError& error) {
    if (error.kind() == ErrorKind::NotImplemented) {
      return false;
    }
    throw;
  }
  info.bytes_used = args.bytes_in_use;
  info.peak_bytes_used = args.peak_bytes_in_use_is_set ? args.peak_bytes_in_use : args.bytes_in_use;
  info.bytes_limit = args.bytes_limit_is_set ? args.bytes_limit : 0;
  return true;
}

} // namespace torch_xla::pjrt
