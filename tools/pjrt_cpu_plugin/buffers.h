// The entries of the table that deal with buffers: upload, download, views of host memory, what they are.
#pragma once

#include "objects.h"

namespace cpu_plugin {

// The numbers of PJRT_Buffer_Type and of XLA's PrimitiveType differ.
struct TypePair {
  PJRT_Buffer_Type c;
  xla::PrimitiveType xla;
};
constexpr TypePair kTypes[] = {
    {PJRT_Buffer_Type_PRED, xla::PRED},
    {PJRT_Buffer_Type_S8, xla::S8},
    {PJRT_Buffer_Type_S16, xla::S16},
    {PJRT_Buffer_Type_S32, xla::S32},
    {PJRT_Buffer_Type_S64, xla::S64},
    {PJRT_Buffer_Type_U8, xla::U8},
    {PJRT_Buffer_Type_U16, xla::U16},
    {PJRT_Buffer_Type_U32, xla::U32},
    {PJRT_Buffer_Type_U64, xla::U64},
    {PJRT_Buffer_Type_F16, xla::F16},
    {PJRT_Buffer_Type_F32, xla::F32},
    {PJRT_Buffer_Type_F64, xla::F64},
    {PJRT_Buffer_Type_BF16, xla::BF16},
    {PJRT_Buffer_Type_C64, xla::C64},
    {PJRT_Buffer_Type_C128, xla::C128},
    {PJRT_Buffer_Type_F8E5M2, xla::F8E5M2},
    {PJRT_Buffer_Type_F8E4M3FN, xla::F8E4M3FN},
    {PJRT_Buffer_Type_F8E5M2FNUZ, xla::F8E5M2FNUZ},
    {PJRT_Buffer_Type_F8E4M3FNUZ, xla::F8E4M3FNUZ},
};

inline xla::PrimitiveType to_xla(PJRT_Buffer_Type type) {
  for (const TypePair& pair : kTypes) {
    if (pair.c == type) {
      return pair.xla;
    }
  }
  return xla::PRIMITIVE_TYPE_INVALID;
}

// XLA aborts where it meets an invalid type.
inline absl::Status check_type(PJRT_Buffer_Type type) {
  return to_xla(type) == xla::PRIMITIVE_TYPE_INVALID ? absl::UnimplementedError(absl::StrCat("this plugin has no buffers of type ", type))
                                                     : absl::OkStatus();
}

inline PJRT_Buffer_Type to_c(xla::PrimitiveType type) {
  for (const TypePair& pair : kTypes) {
    if (pair.xla == type) {
      return pair.c;
    }
  }
  return PJRT_Buffer_Type_INVALID;
}

// A layout that is given must be row-major: the plugin knows no other.
inline absl::Status check_row_major(const PJRT_Buffer_MemoryLayout* layout) {
  if (!layout) {
    return absl::OkStatus();
  }
  bool row_major = layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled && layout->tiled.num_tiles == 0;
  for (size_t i = 0; row_major && i < layout->tiled.minor_to_major_size; ++i) {
    row_major = layout->tiled.minor_to_major[i] == static_cast<int64_t>(layout->tiled.minor_to_major_size - 1 - i);
  }
  return row_major ? absl::OkStatus() : absl::UnimplementedError("this plugin takes row-major layouts only");
}

inline PJRT_Memory* memory_of(PJRT_Client* client, PJRT_Device* device, PJRT_Memory* memory) {
  return memory ? memory : device ? &device->memory : &client->devices[0]->memory;
}

inline absl::StatusOr<PJRT_Buffer*> wrap(PJRT_Client* client, absl::StatusOr<std::unique_ptr<xla::PjRtBuffer>> buffer) {
  if (!buffer.ok()) {
    return buffer.status();
  }
  return new PJRT_Buffer{*std::move(buffer), client};
}

inline PJRT_Error* buffer_from_host(PJRT_Client_BufferFromHostBuffer_Args* args) {
  using Semantics = xla::PjRtClient::HostBufferSemantics;
  RETURN_ERROR(check_row_major(args->device_layout));
  RETURN_ERROR(check_type(args->type));
  std::optional<absl::Span<const int64_t>> strides;
  if (args->num_byte_strides > 0) {
    strides = absl::MakeConstSpan(args->byte_strides, args->num_byte_strides);
  }
  auto [promise, future] = xla::MakePromise<>();
  auto done = [promise = std::move(promise)]() mutable { promise.Set(); };
  auto buffer = wrap(
      args->client,
      args->client->client->BufferFromHostBuffer(
          args->data,
          to_xla(args->type),
          absl::MakeConstSpan(args->dims, args->num_dims),
          strides,
          static_cast<Semantics>(args->host_buffer_semantics), // the same order of names
          std::move(done),
          memory_of(args->client, args->device, args->memory)->space,
          /*device_layout=*/nullptr));
  RETURN_ERROR(buffer.status());
  args->buffer = *buffer;
  args->done_with_host_buffer = new PJRT_Event{std::move(future)};
  return nullptr;
}

inline PJRT_Error* create_uninitialized(PJRT_Client_CreateUninitializedBuffer_Args* args) {
  RETURN_ERROR(check_row_major(args->shape_layout));
  RETURN_ERROR(check_type(args->shape_element_type));
  xla::Shape shape = xla::ShapeUtil::MakeShapeWithDescendingLayout(
      to_xla(args->shape_element_type), absl::MakeConstSpan(args->shape_dims, args->shape_num_dims));
  auto buffer = wrap(
      args->client, args->client->client->CreateUninitializedBuffer(shape, memory_of(args->client, args->device, args->memory)->space));
  RETURN_ERROR(buffer.status());
  args->buffer = *buffer;
  return nullptr;
}

inline PJRT_Error* create_view(PJRT_Client_CreateViewOfDeviceBuffer_Args* args) {
  RETURN_ERROR(check_row_major(args->layout));
  RETURN_ERROR(check_type(args->element_type));
  xla::Shape shape =
      xla::ShapeUtil::MakeShapeWithDescendingLayout(to_xla(args->element_type), absl::MakeConstSpan(args->dims, args->num_dims));
  // XLA calls what it is given: it must never be an empty function.
  auto deleted = [f = args->on_delete_callback, data = args->device_buffer_ptr, arg = args->on_delete_callback_arg] {
    if (f) {
      f(data, arg);
    }
  };
  auto buffer = wrap(
      args->client,
      args->client->client->CreateViewOfDeviceBuffer(
          args->device_buffer_ptr, shape, memory_of(args->client, args->device, nullptr)->space, std::move(deleted)));
  RETURN_ERROR(buffer.status());
  args->buffer = *buffer;
  return nullptr;
}

inline PJRT_Error* to_host(PJRT_Buffer_ToHostBuffer_Args* args) {
  RETURN_ERROR(check_row_major(args->host_layout));
  xla::PjRtBuffer* buffer = args->src->buffer.get();
  xla::Shape shape = xla::ShapeUtil::MakeShapeWithDescendingLayout(buffer->element_type(), buffer->dimensions());
  auto bytes = static_cast<size_t>(xla::ShapeUtil::ByteSizeOf(shape));
  if (!args->dst) {
    args->dst_size = bytes;
    return nullptr;
  }
  if (args->dst_size < bytes) {
    return to_error(absl::InvalidArgumentError(absl::StrCat("the destination has ", args->dst_size, " bytes, needed are ", bytes)));
  }
  auto literal = std::make_shared<xla::MutableBorrowingLiteral>(static_cast<char*>(args->dst), shape);
  xla::Future<> future = buffer->ToLiteral(literal.get());
  future.OnReady([literal](absl::Status) {}); // keeps it until the copy has ended
  args->event = new PJRT_Event{std::move(future)};
  return nullptr;
}

inline PJRT_Error* unsafe_pointer(PJRT_Buffer_UnsafePointer_Args* args) {
  auto pointer = args->buffer->client->client->UnsafeBufferPointer(args->buffer->buffer.get());
  RETURN_ERROR(pointer.status());
  args->buffer_pointer = *pointer;
  return nullptr;
}

inline PJRT_Error* size_on_device(PJRT_Buffer_OnDeviceSizeInBytes_Args* args) {
  auto size = args->buffer->buffer->GetOnDeviceSizeInBytes();
  RETURN_ERROR(size.status());
  args->on_device_size_in_bytes = *size;
  return nullptr;
}

inline PJRT_Error* dimensions(PJRT_Buffer_Dimensions_Args* args) {
  absl::Span<const int64_t> dims = args->buffer->buffer->dimensions();
  args->dims = dims.data();
  args->num_dims = dims.size();
  return nullptr;
}

inline void fill_buffer_entries(PJRT_Api& api) {
  api.PJRT_Client_BufferFromHostBuffer = buffer_from_host;
  api.PJRT_Client_CreateUninitializedBuffer = create_uninitialized;
  api.PJRT_Client_CreateViewOfDeviceBuffer = create_view;
  api.PJRT_Buffer_ToHostBuffer = to_host;
  api.PJRT_Buffer_UnsafePointer = unsafe_pointer;
  api.PJRT_Buffer_OnDeviceSizeInBytes = size_on_device;
  api.PJRT_Buffer_Dimensions = dimensions;
  api.PJRT_Buffer_ElementType = [](PJRT_Buffer_ElementType_Args* args) -> PJRT_Error* {
    args->type = to_c(args->buffer->buffer->element_type());
    return nullptr;
  };
  api.PJRT_Buffer_ReadyEvent = [](PJRT_Buffer_ReadyEvent_Args* args) -> PJRT_Error* {
    args->event = new PJRT_Event{args->buffer->buffer->GetReadyFuture()};
    return nullptr;
  };
  api.PJRT_Buffer_IsOnCpu = [](PJRT_Buffer_IsOnCpu_Args* args) -> PJRT_Error* {
    args->is_on_cpu = args->buffer->buffer->IsOnCpu();
    return nullptr;
  };
  api.PJRT_Buffer_IsDeleted = [](PJRT_Buffer_IsDeleted_Args* args) -> PJRT_Error* {
    args->is_deleted = args->buffer->buffer->IsDeleted();
    return nullptr;
  };
  api.PJRT_Buffer_Delete = [](PJRT_Buffer_Delete_Args* args) -> PJRT_Error* {
    args->buffer->buffer->Delete();
    return nullptr;
  };
  api.PJRT_Buffer_Destroy = [](PJRT_Buffer_Destroy_Args* args) -> PJRT_Error* {
    delete args->buffer;
    return nullptr;
  };
}

} // namespace cpu_plugin
