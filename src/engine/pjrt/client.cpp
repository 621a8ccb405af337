// The client: creation, transfers, compilation.
#include "engine/pjrt/client.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

namespace torch_xla::pjrt {
namespace {

constexpr char kFormat[] = "mlir";
// CompileOptionsProto{executable_build_options{num_replicas: 1, num_partitions: 1}}.
constexpr char kCompileOptions[] = {0x1A, 0x04, 0x20, 0x01, 0x28, 0x01};

Dims byte_strides(const Type& type, const Dims& strides) {
  Dims bytes = strides;
  for (int64_t& stride : bytes) {
    stride *= static_cast<int64_t>(item_size(type.dtype));
  }
  return bytes;
}

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

constexpr const char* kUploading = "copying a tensor to the device";

// What a plugin calls when an event has come. The event's own error is that of the buffer, which tells it to its readers.
struct Callback {
  PluginRef plugin;
  c::Event* event;
  std::function<void()> function;

  static void run(c::Error* error, void* pointer) {
    std::unique_ptr<Callback> callback(static_cast<Callback*>(pointer));
    if (error) {
      callback->plugin->destroy(error);
    }
    auto args = c::make<c::EventArgs>();
    args.event = callback->event;
    callback->plugin->call_quietly(kEvent_Destroy, args);
    callback->function();
  }
};

// Waits where the plugin cannot call.
void call_when_ready(const PluginRef& plugin, c::Event* event, std::function<void()> function) {
  if (!event || !plugin->has(kEvent_OnReady)) {
    plugin->await(event, kUploading);
    function();
    return;
  }
  auto args = c::make<c::EventOnReady>();
  args.event = event;
  args.callback = &Callback::run;
  args.user_arg = new Callback{plugin, event, std::move(function)};
  plugin->call(kEvent_OnReady, args, kUploading);
}

// While it lives, tells on stderr once if a plugin does not answer: libtpu waits for ever on a machine without a TPU.
class SlowAnswer {
 public:
  static constexpr std::chrono::seconds kPatience{10};

  explicit SlowAnswer(const std::string& path) : thread_([this, path] { watch(path); }) {}
  ~SlowAnswer() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      answered_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  SlowAnswer(const SlowAnswer&) = delete;
  SlowAnswer& operator=(const SlowAnswer&) = delete;

 private:
  void watch(const std::string& path) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [this] { return answered_; })) {
      std::fprintf(
          stderr, "torch_xla: still waiting for the PJRT plugin %s to open its device; is the device there and free?\n", path.c_str());
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool answered_ = false; // guarded by mutex_
  std::thread thread_;
};

// The lines of /proc/cpuinfo that tell one kind of processor from another; empty where there is no such file.
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
    SlowAnswer slow(plugin_->path());
    plugin_->call(kClient_Create, create, "creating a client of the PJRT plugin");
  }
  client_ = create.client;
  auto devices = c::make<c::ClientAddressableDevices>();
  devices.client = client_;
  plugin_->call(kClient_AddressableDevices, devices, "listing the devices of the PJRT plugin");
  XLA_CHECK(devices.num_devices > 0, "the PJRT plugin ", plugin_->path(), " found no device");
  device_ = devices.devices[0];
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

c::DeviceDescription* Client::description() const {
  auto args = c::make<c::DeviceGetDescription>();
  args.device = device_;
  plugin_->call(kDevice_GetDescription, args, "asking for the device's description");
  return args.description;
}

std::string Client::device_kind() const {
  auto kind = c::make<c::DeviceDescriptionKind>();
  kind.description = description();
  plugin_->call(kDeviceDescription_Kind, kind, "asking for the device's kind");
  return {kind.kind, kind.kind_size};
}

NamedValues Client::device_attributes() const {
  auto args = c::make<c::DeviceDescriptionAttributes>();
  args.description = description();
  if (plugin_->has(kDeviceDescription_Attributes)) {
    plugin_->call(kDeviceDescription_Attributes, args, "asking for the device's attributes");
  }
  return read_values(args.attributes, args.num_attributes);
}

Hash128 Client::fingerprint() const {
  const char* flags = std::getenv("XLA_FLAGS");
  std::string parts = str(platform_name_, "\n", platform_version_, "\n", device_kind(), "\n", plugin_->version(), "\n", flags ? flags : "");
  for (const auto& [name, value] : plugin_->attributes()) {
    parts += str("\n", name, "=", std::visit(ValueText(), value));
  }
  std::error_code ignored; // the path may be a name that the loader has looked up
  parts += str("\n", plugin_->path(), "\n", std::filesystem::file_size(plugin_->path(), ignored), "\n");
  parts += str(std::filesystem::last_write_time(plugin_->path(), ignored).time_since_epoch().count(), "\n", processor());
  Hash128 hash;
  hash.add_bytes(parts.data(), parts.size());
  return hash;
}

BufferHandle Client::start_upload(
    const Type& type, const Dims& byte_strides, const void* data, c::HostBufferSemantics semantics, c::Event** done) const {
  auto args = c::make<c::ClientBufferFromHostBuffer>();
  args.client = client_;
  args.data = data;
  args.type = buffer_type(type.dtype);
  args.dims = type.dims.data();
  args.num_dims = type.dims.size();
  args.byte_strides = byte_strides.empty() ? nullptr : byte_strides.data();
  args.num_byte_strides = byte_strides.size();
  args.semantics = semantics;
  args.device = device_;
  plugin_->call(kClient_BufferFromHostBuffer, args, kUploading);
  *done = args.done_with_host_buffer;
  return {shared_from_this(), args.buffer};
}

BufferHandle Client::upload(const Type& type, const Dims& strides, const void* data) const {
  c::Event* done = nullptr;
  BufferHandle buffer = start_upload(type, byte_strides(type, strides), data, c::HostBufferSemantics::kImmutableOnlyDuringCall, &done);
  plugin_->await(done, kUploading);
  return buffer;
}

BufferHandle Client::adopt(const Type& type, void* data, std::function<void()> release) const {
  c::Event* done = nullptr;
  BufferHandle buffer = start_upload(type, {}, data, c::HostBufferSemantics::kMutableZeroCopy, &done);
  call_when_ready(plugin_, done, std::move(release));
  return buffer;
}

void Client::download(const BufferHandle& buffer, const Type& type, void* data) const {
  Dims minor_to_major;
  for (size_t d = type.dims.size(); d-- > 0;) {
    minor_to_major.push_back(static_cast<int64_t>(d));
  }
  auto layout = c::make<c::HostLayout>();
  layout.type = c::LayoutType::kTiled;
  layout.tiled = c::make<c::TiledLayout>();
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  auto args = c::make<c::BufferToHostBuffer>();
  args.src = buffer.get();
  args.host_layout = &layout;
  args.dst = data;
  args.dst_size = static_cast<size_t>(type.nbytes());
  plugin_->call(kBuffer_ToHostBuffer, args, "copying a tensor from the device");
  plugin_->await(args.event, "copying a tensor from the device");
}

LoadedExecutableHandle Client::compile(const std::string& mlir) const {
  auto program = c::make<c::Program>();
  program.code = const_cast<char*>(mlir.data());
  program.code_size = mlir.size();
  program.format = kFormat;
  program.format_size = sizeof(kFormat) - 1;
  auto args = c::make<c::ClientCompile>();
  args.client = client_;
  args.program = &program;
  args.options = kCompileOptions;
  args.options_size = sizeof(kCompileOptions);
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

bool Client::read_memory(EngineMemoryInfo& info) const {
  if (!plugin_->has(kDevice_MemoryStats)) {
    return false;
  }
  auto args = c::make<c::DeviceMemoryStats>();
  args.device = device_;
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

c::BufferType buffer_type(DType dtype) {
  using B = c::BufferType;
  switch (dtype) {
    case DType::Bool:
      return B::kPred;
    case DType::I8:
      return B::kS8;
    case DType::I16:
      return B::kS16;
    case DType::I32:
      return B::kS32;
    case DType::I64:
      return B::kS64;
    case DType::U8:
      return B::kU8;
    case DType::U16:
      return B::kU16;
    case DType::U32:
    case DType::C32: // two 16-bit floats
      return B::kU32;
    case DType::U64:
      return B::kU64;
    case DType::F16:
      return B::kF16;
    case DType::F32:
      return B::kF32;
    case DType::F64:
      return B::kF64;
    case DType::BF16:
      return B::kBF16;
    case DType::C64:
      return B::kC64;
    case DType::C128:
      return B::kC128;
    case DType::F8E5M2:
      return B::kF8E5M2;
    case DType::F8E4M3FN:
      return B::kF8E4M3FN;
    case DType::F8E5M2FNUZ:
      return B::kF8E5M2FNUZ;
    case DType::F8E4M3FNUZ:
      return B::kF8E4M3FNUZ;
    case DType::Undefined:
      break;
  }
  XLA_ASSERT(false, "a buffer of elements without a type");
}

} // namespace torch_xla::pjrt
