// Client: the plugin's devices, and handles of objects on them. A handle owns one object of the plugin and keeps the client alive.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/pjrt/plugin.h"

namespace torch_xla::pjrt {

class Client;
using ClientRef = std::shared_ptr<const Client>;

// One object of the plugin, destroyed with its handle by the entry kDestroy. Args has the object behind its head.
template <typename Object, typename Args, const Entry<Args>& kDestroy>
class Handle {
 public:
  Handle() = default;
  Handle(ClientRef client, Object* object) : client_(std::move(client)), object_(object) {}
  Handle(Handle&& other) noexcept : client_(std::move(other.client_)), object_(std::exchange(other.object_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(client_, other.client_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~Handle();
  Object* get() const {
    return object_;
  }
  const ClientRef& client() const {
    return client_;
  }

 private:
  ClientRef client_;
  Object* object_ = nullptr;
};
using BufferHandle = Handle<c::Buffer, c::BufferDestroy, kBuffer_Destroy>;
using ExecutableHandle = Handle<c::Executable, c::ExecutableDestroy, kExecutable_Destroy>;
using LoadedExecutableHandle = Handle<c::LoadedExecutable, c::LoadedExecutableDestroy, kLoadedExecutable_Destroy>;

// Immutable after create(); any thread.
class Client : public std::enable_shared_from_this<Client> {
 public:
  // Throws UserError if the plugin finds no device or does not take an option.
  static ClientRef create(PluginRef plugin, const NamedValues& options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Plugin& plugin() const {
    return *plugin_;
  }
  c::Client* get() const {
    return client_;
  }
  int num_devices() const {
    return static_cast<int>(devices_.size());
  }
  const std::string& platform_name() const { // "cpu", "cuda"
    return platform_name_;
  }
  const std::string& platform_version() const {
    return platform_version_;
  }
  std::string device_kind(int device) const; // "NVIDIA H200"
  NamedValues device_attributes(int device) const; // the plugin's: "compute_capability"
  // Names everything besides the program that compiled code depends on: compile options except the user's, the plugin's file and versions,
  // the device, the host's processor and the variable XLA_FLAGS.
  std::string fingerprint(int device) const;

  // `strides` in elements; empty: row-major. The buffer is row-major.
  BufferHandle upload(int device, const Type& type, const Dims& strides, const void* data) const;
  // A buffer of row-major memory that nobody else reads or writes any more: the plugin may use the memory itself. `release` is called once,
  // on any thread, after the plugin's last use.
  BufferHandle adopt(int device, const Type& type, void* data, std::function<void()> release) const;
  // Row-major. Waits.
  void download(const BufferHandle& buffer, const Type& type, void* data) const;
  // CompileOptionsProto: one replica with partitions on these devices, which are counted from the given one on, with the user's options,
  // without lists.
  std::string compile_options(int device, const Dims& order = {0}, const NamedValues& custom = {}) const;
  // A program that runs on these devices.
  LoadedExecutableHandle compile(int device, const Dims& order, const std::string& mlir, const NamedValues& custom = {}) const;
  // The bytes of an executable that load() takes, or empty if the plugin has no such function. Throws UserError if it fails.
  std::string serialize(const LoadedExecutableHandle& loaded) const;
  // Loads an executable for the device of its compile.
  LoadedExecutableHandle load(const std::string& bytes) const;
  ExecutableHandle executable_of(const LoadedExecutableHandle& loaded) const;
  // False where the plugin does not count memory.
  bool read_memory(int device, EngineMemoryInfo& info) const;

 private:
  explicit Client(PluginRef plugin) : plugin_(std::move(plugin)) {}
  void open(const NamedValues& options);
  c::DeviceDescription* description(int device) const;
  // `done` is ready when the caller may reuse the memory.
  BufferHandle start_upload(
      int device, const Type& type, const Dims& byte_strides, const void* data, c::HostBufferSemantics semantics, c::Event** done) const;
  std::string read_text(const Entry<c::ClientText>& entry) const;

  PluginRef plugin_;
  c::Client* client_ = nullptr;
  std::vector<c::Device*> devices_; // of this process
  std::string platform_name_;
  std::string platform_version_;
};

template <typename Object, typename Args, const Entry<Args>& kDestroy>
Handle<Object, Args, kDestroy>::~Handle() {
  if (object_) {
    Args args{{c::kStructSize<Args>, nullptr}, object_};
    client_->plugin().call_quietly(kDestroy, args);
  }
}

// The plugin's number of a dtype. Types that XLA lacks and no row computes on are stored as unsigned integers of their size.
c::BufferType buffer_type(DType dtype);

} // namespace torch_xla::pjrt
