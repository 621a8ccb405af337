// Compares our declaration of the PJRT C API with PJRT's header: sizes of structs, places of fields and entries, numbers of names.
#include <gtest/gtest.h>

#include "engine/pjrt/c_api_table.h"

#ifdef XLA_PJRT_HEADER
#include XLA_PJRT_HEADER

namespace torch_xla::pjrt {
namespace {

// FIELD(ours, our name, theirs, their name).
#define FIELD(T, ours, U, theirs)                       \
  EXPECT_EQ(offsetof(c::T, ours), offsetof(U, theirs)); \
  EXPECT_EQ(sizeof(c::T::ours), sizeof(U::theirs))
#define STRUCT(T, U)                                        \
  EXPECT_EQ(c::kStructSize<c::T>, size_t{U##_STRUCT_SIZE}); \
  EXPECT_EQ(alignof(c::T), alignof(U));                     \
  EXPECT_EQ(offsetof(c::T, head.extensions), offsetof(U, extension_start))

TEST(PjrtCApi, ErrorsAndEvents) {
  STRUCT(ErrorDestroy, PJRT_Error_Destroy_Args);
  FIELD(ErrorDestroy, error, PJRT_Error_Destroy_Args, error);
  STRUCT(ErrorMessage, PJRT_Error_Message_Args);
  FIELD(ErrorMessage, error, PJRT_Error_Message_Args, error);
  FIELD(ErrorMessage, message, PJRT_Error_Message_Args, message);
  FIELD(ErrorMessage, message_size, PJRT_Error_Message_Args, message_size);
  STRUCT(ErrorGetCode, PJRT_Error_GetCode_Args);
  FIELD(ErrorGetCode, error, PJRT_Error_GetCode_Args, error);
  FIELD(ErrorGetCode, code, PJRT_Error_GetCode_Args, code);
  STRUCT(EventArgs, PJRT_Event_Destroy_Args);
  FIELD(EventArgs, event, PJRT_Event_Destroy_Args, event);
  STRUCT(EventOnReady, PJRT_Event_OnReady_Args);
  FIELD(EventOnReady, event, PJRT_Event_OnReady_Args, event);
  FIELD(EventOnReady, callback, PJRT_Event_OnReady_Args, callback);
  FIELD(EventOnReady, user_arg, PJRT_Event_OnReady_Args, user_arg);
  STRUCT(EventArgs, PJRT_Event_Await_Args);
  FIELD(EventArgs, event, PJRT_Event_Await_Args, event);
}

TEST(PjrtCApi, PluginAndClient) {
  STRUCT(NamedValue, PJRT_NamedValue);
  FIELD(NamedValue, name, PJRT_NamedValue, name);
  FIELD(NamedValue, name_size, PJRT_NamedValue, name_size);
  FIELD(NamedValue, type, PJRT_NamedValue, type);
  FIELD(NamedValue, string_value, PJRT_NamedValue, string_value);
  FIELD(NamedValue, int64_array_value, PJRT_NamedValue, int64_array_value);
  FIELD(NamedValue, value_size, PJRT_NamedValue, value_size);
  STRUCT(PluginInitialize, PJRT_Plugin_Initialize_Args);
  STRUCT(PluginAttributes, PJRT_Plugin_Attributes_Args);
  FIELD(PluginAttributes, attributes, PJRT_Plugin_Attributes_Args, attributes);
  FIELD(PluginAttributes, num_attributes, PJRT_Plugin_Attributes_Args, num_attributes);
  STRUCT(DeviceDescriptionAttributes, PJRT_DeviceDescription_Attributes_Args);
  FIELD(DeviceDescriptionAttributes, description, PJRT_DeviceDescription_Attributes_Args, device_description);
  FIELD(DeviceDescriptionAttributes, num_attributes, PJRT_DeviceDescription_Attributes_Args, num_attributes);
  FIELD(DeviceDescriptionAttributes, attributes, PJRT_DeviceDescription_Attributes_Args, attributes);
  STRUCT(ClientCreate, PJRT_Client_Create_Args);
  FIELD(ClientCreate, options, PJRT_Client_Create_Args, create_options);
  FIELD(ClientCreate, num_options, PJRT_Client_Create_Args, num_options);
  FIELD(ClientCreate, get_callback, PJRT_Client_Create_Args, kv_get_callback);
  FIELD(ClientCreate, put_callback_arg, PJRT_Client_Create_Args, kv_put_user_arg);
  FIELD(ClientCreate, client, PJRT_Client_Create_Args, client);
  FIELD(ClientCreate, try_get_callback, PJRT_Client_Create_Args, kv_try_get_callback);
  STRUCT(ClientDestroy, PJRT_Client_Destroy_Args);
  FIELD(ClientDestroy, client, PJRT_Client_Destroy_Args, client);
  STRUCT(ClientText, PJRT_Client_PlatformName_Args);
  FIELD(ClientText, text, PJRT_Client_PlatformName_Args, platform_name);
  FIELD(ClientText, text_size, PJRT_Client_PlatformName_Args, platform_name_size);
  STRUCT(ClientText, PJRT_Client_PlatformVersion_Args);
  FIELD(ClientText, text, PJRT_Client_PlatformVersion_Args, platform_version);
  FIELD(ClientText, text_size, PJRT_Client_PlatformVersion_Args, platform_version_size);
  STRUCT(ClientAddressableDevices, PJRT_Client_AddressableDevices_Args);
  FIELD(ClientAddressableDevices, devices, PJRT_Client_AddressableDevices_Args, addressable_devices);
  FIELD(ClientAddressableDevices, num_devices, PJRT_Client_AddressableDevices_Args, num_addressable_devices);
}

TEST(PjrtCApi, Devices) {
  STRUCT(DeviceGetDescription, PJRT_Device_GetDescription_Args);
  FIELD(DeviceGetDescription, device, PJRT_Device_GetDescription_Args, device);
  FIELD(DeviceGetDescription, description, PJRT_Device_GetDescription_Args, device_description);
  STRUCT(DeviceDescriptionId, PJRT_DeviceDescription_Id_Args);
  FIELD(DeviceDescriptionId, description, PJRT_DeviceDescription_Id_Args, device_description);
  FIELD(DeviceDescriptionId, id, PJRT_DeviceDescription_Id_Args, id);
  STRUCT(DeviceDescriptionKind, PJRT_DeviceDescription_Kind_Args);
  FIELD(DeviceDescriptionKind, description, PJRT_DeviceDescription_Kind_Args, device_description);
  FIELD(DeviceDescriptionKind, kind, PJRT_DeviceDescription_Kind_Args, device_kind);
  FIELD(DeviceDescriptionKind, kind_size, PJRT_DeviceDescription_Kind_Args, device_kind_size);
  STRUCT(DeviceMemoryStats, PJRT_Device_MemoryStats_Args);
  FIELD(DeviceMemoryStats, device, PJRT_Device_MemoryStats_Args, device);
#define STATS(field) FIELD(DeviceMemoryStats, field, PJRT_Device_MemoryStats_Args, field)
  STATS(bytes_in_use);
  STATS(peak_bytes_in_use);
  STATS(peak_bytes_in_use_is_set);
  STATS(num_allocs);
  STATS(largest_alloc_size);
  STATS(bytes_limit);
  STATS(bytes_limit_is_set);
  STATS(bytes_reserved);
  STATS(peak_bytes_reserved);
  STATS(bytes_reservable_limit);
  STATS(largest_free_block_bytes);
  STATS(pool_bytes);
  STATS(peak_pool_bytes);
  STATS(peak_pool_bytes_is_set);
#undef STATS
}

TEST(PjrtCApi, Programs) {
  STRUCT(Program, PJRT_Program);
  FIELD(Program, code, PJRT_Program, code);
  FIELD(Program, code_size, PJRT_Program, code_size);
  FIELD(Program, format, PJRT_Program, format);
  FIELD(Program, format_size, PJRT_Program, format_size);
  STRUCT(ClientCompile, PJRT_Client_Compile_Args);
  FIELD(ClientCompile, client, PJRT_Client_Compile_Args, client);
  FIELD(ClientCompile, program, PJRT_Client_Compile_Args, program);
  FIELD(ClientCompile, options, PJRT_Client_Compile_Args, compile_options);
  FIELD(ClientCompile, options_size, PJRT_Client_Compile_Args, compile_options_size);
  FIELD(ClientCompile, executable, PJRT_Client_Compile_Args, executable);
  STRUCT(LoadedExecutableDestroy, PJRT_LoadedExecutable_Destroy_Args);
  FIELD(LoadedExecutableDestroy, executable, PJRT_LoadedExecutable_Destroy_Args, executable);
  STRUCT(LoadedExecutableGetExecutable, PJRT_LoadedExecutable_GetExecutable_Args);
  FIELD(LoadedExecutableGetExecutable, loaded, PJRT_LoadedExecutable_GetExecutable_Args, loaded_executable);
  FIELD(LoadedExecutableGetExecutable, executable, PJRT_LoadedExecutable_GetExecutable_Args, executable);
  STRUCT(ExecutableDestroy, PJRT_Executable_Destroy_Args);
  FIELD(ExecutableDestroy, executable, PJRT_Executable_Destroy_Args, executable);
  STRUCT(ExecutableNumOutputs, PJRT_Executable_NumOutputs_Args);
  FIELD(ExecutableNumOutputs, num_outputs, PJRT_Executable_NumOutputs_Args, num_outputs);
  STRUCT(ExecutableSerialize, PJRT_Executable_Serialize_Args);
  FIELD(ExecutableSerialize, executable, PJRT_Executable_Serialize_Args, executable);
  FIELD(ExecutableSerialize, bytes, PJRT_Executable_Serialize_Args, serialized_bytes);
  FIELD(ExecutableSerialize, bytes_size, PJRT_Executable_Serialize_Args, serialized_bytes_size);
  FIELD(ExecutableSerialize, serialized, PJRT_Executable_Serialize_Args, serialized_executable);
  FIELD(ExecutableSerialize, deleter, PJRT_Executable_Serialize_Args, serialized_executable_deleter);
  STRUCT(ExecutableDeserializeAndLoad, PJRT_Executable_DeserializeAndLoad_Args);
  FIELD(ExecutableDeserializeAndLoad, client, PJRT_Executable_DeserializeAndLoad_Args, client);
  FIELD(ExecutableDeserializeAndLoad, bytes, PJRT_Executable_DeserializeAndLoad_Args, serialized_executable);
  FIELD(ExecutableDeserializeAndLoad, bytes_size, PJRT_Executable_DeserializeAndLoad_Args, serialized_executable_size);
  FIELD(ExecutableDeserializeAndLoad, executable, PJRT_Executable_DeserializeAndLoad_Args, loaded_executable);
  STRUCT(ExecutableGetCompiledMemoryStats, PJRT_Executable_GetCompiledMemoryStats_Args);
  FIELD(ExecutableGetCompiledMemoryStats, temp_size, PJRT_Executable_GetCompiledMemoryStats_Args, temp_size_in_bytes);
  FIELD(ExecutableGetCompiledMemoryStats, host_temp_size, PJRT_Executable_GetCompiledMemoryStats_Args, host_temp_size_in_bytes);
  FIELD(ExecutableGetCompiledMemoryStats, total_size, PJRT_Executable_GetCompiledMemoryStats_Args, total_size_in_bytes);
}

TEST(PjrtCApi, Runs) {
#define OPTION(field) FIELD(ExecuteOptions, field, PJRT_ExecuteOptions, field)
  STRUCT(ExecuteOptions, PJRT_ExecuteOptions);
  OPTION(send_callbacks);
  OPTION(recv_callbacks);
  OPTION(num_send_ops);
  OPTION(num_recv_ops);
  OPTION(launch_id);
  OPTION(non_donatable_input_indices);
  OPTION(num_non_donatable_input_indices);
  OPTION(context);
  OPTION(call_location);
  OPTION(num_tasks);
  OPTION(task_ids);
  OPTION(incarnation_ids);
#undef OPTION
#define ARGUMENT(field) FIELD(LoadedExecutableExecute, field, PJRT_LoadedExecutable_Execute_Args, field)
  STRUCT(LoadedExecutableExecute, PJRT_LoadedExecutable_Execute_Args);
  ARGUMENT(executable);
  ARGUMENT(options);
  ARGUMENT(argument_lists);
  ARGUMENT(num_devices);
  ARGUMENT(num_args);
  ARGUMENT(output_lists);
  ARGUMENT(device_complete_events);
  ARGUMENT(execute_device);
#undef ARGUMENT
}

TEST(PjrtCApi, Buffers) {
  STRUCT(BufferIsDeleted, PJRT_Buffer_IsDeleted_Args);
  FIELD(BufferIsDeleted, buffer, PJRT_Buffer_IsDeleted_Args, buffer);
  FIELD(BufferIsDeleted, is_deleted, PJRT_Buffer_IsDeleted_Args, is_deleted);
  STRUCT(BufferDestroy, PJRT_Buffer_Destroy_Args);
  FIELD(BufferDestroy, buffer, PJRT_Buffer_Destroy_Args, buffer);
#define ARGUMENT(ours, theirs) FIELD(ClientBufferFromHostBuffer, ours, PJRT_Client_BufferFromHostBuffer_Args, theirs)
  STRUCT(ClientBufferFromHostBuffer, PJRT_Client_BufferFromHostBuffer_Args);
  ARGUMENT(client, client);
  ARGUMENT(data, data);
  ARGUMENT(type, type);
  ARGUMENT(dims, dims);
  ARGUMENT(num_dims, num_dims);
  ARGUMENT(byte_strides, byte_strides);
  ARGUMENT(num_byte_strides, num_byte_strides);
  ARGUMENT(semantics, host_buffer_semantics);
  ARGUMENT(device, device);
  ARGUMENT(memory, memory);
  ARGUMENT(device_layout, device_layout);
  ARGUMENT(done_with_host_buffer, done_with_host_buffer);
  ARGUMENT(buffer, buffer);
#undef ARGUMENT
  STRUCT(TiledLayout, PJRT_Buffer_MemoryLayout_Tiled);
  FIELD(TiledLayout, minor_to_major, PJRT_Buffer_MemoryLayout_Tiled, minor_to_major);
  FIELD(TiledLayout, minor_to_major_size, PJRT_Buffer_MemoryLayout_Tiled, minor_to_major_size);
  FIELD(TiledLayout, tile_dims, PJRT_Buffer_MemoryLayout_Tiled, tile_dims);
  FIELD(TiledLayout, num_tiles, PJRT_Buffer_MemoryLayout_Tiled, num_tiles);
  STRUCT(HostLayout, PJRT_Buffer_MemoryLayout);
  FIELD(HostLayout, tiled, PJRT_Buffer_MemoryLayout, tiled);
  FIELD(HostLayout, type, PJRT_Buffer_MemoryLayout, type);
  STRUCT(BufferToHostBuffer, PJRT_Buffer_ToHostBuffer_Args);
  FIELD(BufferToHostBuffer, src, PJRT_Buffer_ToHostBuffer_Args, src);
  FIELD(BufferToHostBuffer, host_layout, PJRT_Buffer_ToHostBuffer_Args, host_layout);
  FIELD(BufferToHostBuffer, dst, PJRT_Buffer_ToHostBuffer_Args, dst);
  FIELD(BufferToHostBuffer, dst_size, PJRT_Buffer_ToHostBuffer_Args, dst_size);
  FIELD(BufferToHostBuffer, event, PJRT_Buffer_ToHostBuffer_Args, event);
}

TEST(PjrtCApi, Table) {
  EXPECT_EQ(offsetof(c::Api, version), offsetof(PJRT_Api, pjrt_api_version));
  FIELD(ApiVersion, major, PJRT_Api_Version, major_version);
  FIELD(ApiVersion, minor, PJRT_Api_Version, minor_version);
#define ENTRY(name, position, args, needed) \
  EXPECT_EQ(offsetof(c::Api, entries) + position * sizeof(void*), offsetof(PJRT_Api, PJRT_##name));
  XLA_PJRT_ENTRIES(ENTRY)
  ENTRY(Error_Destroy, c::kErrorDestroyPosition, , )
  ENTRY(Error_Message, c::kErrorMessagePosition, , )
#undef ENTRY
}

#define NUMBER(ours, theirs) EXPECT_EQ(static_cast<int>(c::ours), static_cast<int>(theirs))

TEST(PjrtCApi, Numbers) {
  NUMBER(ErrorCode::kInvalidArgument, PJRT_Error_Code_INVALID_ARGUMENT);
  NUMBER(ErrorCode::kResourceExhausted, PJRT_Error_Code_RESOURCE_EXHAUSTED);
  NUMBER(ErrorCode::kUnimplemented, PJRT_Error_Code_UNIMPLEMENTED);
  NUMBER(ErrorCode::kUnauthenticated, PJRT_Error_Code_UNAUTHENTICATED);
  NUMBER(NamedValueType::kInt64List, PJRT_NamedValue_kInt64List);
  NUMBER(NamedValueType::kBool, PJRT_NamedValue_kBool);
  NUMBER(HostBufferSemantics::kImmutableOnlyDuringCall, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);
  NUMBER(HostBufferSemantics::kMutableZeroCopy, PJRT_HostBufferSemantics_kMutableZeroCopy);
  NUMBER(LayoutType::kTiled, PJRT_Buffer_MemoryLayout_Type_Tiled);
  NUMBER(LayoutType::kStrides, PJRT_Buffer_MemoryLayout_Type_Strides);
#define TYPE(name) NUMBER(BufferType::k##name, PJRT_Buffer_Type_##name)
  NUMBER(BufferType::kPred, PJRT_Buffer_Type_PRED);
  TYPE(S8);
  TYPE(S16);
  TYPE(S32);
  TYPE(S64);
  TYPE(U8);
  TYPE(U16);
  TYPE(U32);
  TYPE(U64);
  TYPE(F16);
  TYPE(F32);
  TYPE(F64);
  TYPE(BF16);
  TYPE(C64);
  TYPE(C128);
  TYPE(F8E5M2);
  TYPE(F8E4M3FN);
  TYPE(F8E5M2FNUZ);
  TYPE(F8E4M3FNUZ);
#undef TYPE
}

} // namespace
} // namespace torch_xla::pjrt

#else

TEST(PjrtCApi, Header) {
  GTEST_SKIP() << "PJRT's header is not here: run tools/build_pjrt_cpu.py and configure again";
}

#endif
