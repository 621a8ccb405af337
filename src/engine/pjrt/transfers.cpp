// The client's transfers: tensors from host memory to buffers of the device and back.
#include <memory>

#include "engine/pjrt/client.h"

namespace torch_xla::pjrt {
namespace {

Dims byte_strides(const Type& type, const Dims& strides) {
  Dims bytes = strides;
  for (int64_t& stride : bytes) {
    stride *= static_cast<int64_t>(item_size(type.dtype));
  }
  return bytes;
}

constexpr const char* kUploading = "copying a tensor to the device";

// Called by the plugin when an event is ready. The event's error is also the buffer's, and readers of the buffer get it.
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

void call_when_ready(const PluginRef& plugin, c::Event* event, std::function<void()> function) {
  if (!event) {
    function();
    return;
  }
  auto args = c::make<c::EventOnReady>();
  args.event = event;
  args.callback = &Callback::run;
  args.user_arg = new Callback{plugin, event, std::move(function)};
  plugin->call(kEvent_OnReady, args, kUploading);
}

} // namespace

BufferHandle Client::start_upload(
    int device, const Type& type, const Dims& byte_strides, const void* data, c::HostBufferSemantics semantics, c::Event** done) const {
  auto args = c::make<c::ClientBufferFromHostBuffer>();
  args.client = client_;
  args.data = data;
  args.type = buffer_type(type.dtype);
  args.dims = type.dims.data();
  args.num_dims = type.dims.size();
  args.byte_strides = byte_strides.empty() ? nullptr : byte_strides.data();
  args.num_byte_strides = byte_strides.size();
  args.semantics = semantics;
  args.device = devices_[device];
  plugin_->call(kClient_BufferFromHostBuffer, args, kUploading);
  *done = args.done_with_host_buffer;
  return {shared_from_this(), args.buffer};
}

BufferHandle Client::upload(int device, const Type& type, const Dims& strides, const void* data) const {
  c::Event* done = nullptr;
  BufferHandle buffer =
      start_upload(device, type, byte_strides(type, strides), data, c::HostBufferSemantics::kImmutableOnlyDuringCall, &done);
  plugin_->await(done, kUploading);
  return buffer;
}

BufferHandle Client::adopt(int device, const Type& type, void* data, std::function<void()> release) const {
  if (!plugin_->has(kEvent_OnReady)) { // without a callback the memory could never be released
    BufferHandle copy = upload(device, type, {}, data);
    release();
    return copy;
  }
  c::Event* done = nullptr;
  BufferHandle buffer = start_upload(device, type, {}, data, c::HostBufferSemantics::kMutableZeroCopy, &done);
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
    case DType::F8E8M0FNU: // bytes, as plugins with this interface lack both types
    case DType::F4E2M1X2:
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
