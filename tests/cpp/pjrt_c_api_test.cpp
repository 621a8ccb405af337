// Compares our declaration of the PJRT C API with PJRT's header: sizes of structs, places of fields and entries, numbers of names.
#include <gtest/gtest.h>

#include "engine/pjrt/c_api_table.h"

#ifdef XLA_PJRT_HEADER
#include XLA_PJRT_HEADER

namespace torch_xla::pjrt {
namespace {

// A field of a struct in our declaration and in theirs.
struct Field {
  const char* name;
  size_t our_place, our_size, their_place, their_size;
};

void check(std::initializer_list<Field> fields) {
  for (const Field& field : fields) {
    EXPECT_EQ(field.our_place, field.their_place) << field.name;
    EXPECT_EQ(field.our_size, field.their_size) << field.name;
  }
}

// STRUCT(ours, theirs, its fields): PAIR where their name of a field is another one.
// clang-format off
#define PAIR(ours, theirs) Field{#ours, offsetof(Ours, ours), sizeof(Ours::ours), offsetof(Theirs, theirs), sizeof(Theirs::theirs)}
#define SAME(name) PAIR(name, name)
#define STRUCT(T, U, ...)                                                                \
  {                                                                                      \
    using Ours = c::T;                                                                   \
    using Theirs = U;                                                                    \
    EXPECT_EQ(c::kStructSize<Ours>, size_t{U##_STRUCT_SIZE}) << #U;                      \
    EXPECT_EQ(alignof(Ours), alignof(Theirs)) << #U;                                     \
    EXPECT_EQ(offsetof(Ours, head.extensions), offsetof(Theirs, extension_start)) << #U; \
    check({__VA_ARGS__});                                                                \
  }

TEST(PjrtCApi, ErrorsAndEvents) {
  STRUCT(ErrorDestroy, PJRT_Error_Destroy_Args, SAME(error))
  STRUCT(ErrorMessage, PJRT_Error_Message_Args, SAME(error), SAME(message), SAME(message_size))
  STRUCT(ErrorGetCode, PJRT_Error_GetCode_Args, SAME(error), SAME(code))
  STRUCT(EventArgs, PJRT_Event_Destroy_Args, SAME(event))
  STRUCT(EventOnReady, PJRT_Event_OnReady_Args, SAME(event), SAME(callback), SAME(user_arg))
  STRUCT(EventArgs, PJRT_Event_Await_Args, SAME(event))
}

TEST(PjrtCApi, PluginAndClient) {
  STRUCT(NamedValue, PJRT_NamedValue, SAME(name), SAME(name_size), SAME(type), SAME(string_value), SAME(int64_array_value),
         SAME(value_size))
  STRUCT(PluginInitialize, PJRT_Plugin_Initialize_Args)
  STRUCT(PluginAttributes, PJRT_Plugin_Attributes_Args, SAME(attributes), SAME(num_attributes))
  STRUCT(DeviceDescriptionAttributes, PJRT_DeviceDescription_Attributes_Args, PAIR(description, device_description), SAME(num_attributes),
         SAME(attributes))
  STRUCT(ClientCreate, PJRT_Client_Create_Args, PAIR(options, create_options), SAME(num_options), PAIR(get_callback, kv_get_callback),
         PAIR(put_callback_arg, kv_put_user_arg), SAME(client), PAIR(try_get_callback, kv_try_get_callback))
  STRUCT(ClientDestroy, PJRT_Client_Destroy_Args, SAME(client))
  STRUCT(ClientText, PJRT_Client_PlatformName_Args, PAIR(text, platform_name), PAIR(text_size, platform_name_size))
  STRUCT(ClientText, PJRT_Client_PlatformVersion_Args, PAIR(text, platform_version), PAIR(text_size, platform_version_size))
  STRUCT(ClientAddressableDevices, PJRT_Client_AddressableDevices_Args, PAIR(devices, addressable_devices),
         PAIR(num_devices, num_addressable_devices))
}

TEST(PjrtCApi, Devices) {
  STRUCT(DeviceGetDescription, PJRT_Device_GetDescription_Args, SAME(device), PAIR(description, device_description))
  STRUCT(DeviceDescriptionId, PJRT_DeviceDescription_Id_Args, PAIR(description, device_description), SAME(id))
  STRUCT(DeviceDescriptionKind, PJRT_DeviceDescription_Kind_Args, PAIR(description, device_description), PAIR(kind, device_kind),
         PAIR(kind_size, device_kind_size))
  STRUCT(DeviceMemoryStats, PJRT_Device_MemoryStats_Args, SAME(device), SAME(bytes_in_use), SAME(peak_bytes_in_use),
         SAME(peak_bytes_in_use_is_set), SAME(num_allocs), SAME(largest_alloc_size), SAME(bytes_limit), SAME(bytes_limit_is_set),
         SAME(bytes_reserved), SAME(peak_bytes_reserved), SAME(bytes_reservable_limit), SAME(largest_free_block_bytes), SAME(pool_bytes),
         SAME(peak_pool_bytes), SAME(peak_pool_bytes_is_set))
}

TEST(PjrtCApi, Programs) {
  STRUCT(Program, PJRT_Program, SAME(code), SAME(code_size), SAME(format), SAME(format_size))
  STRUCT(ClientCompile, PJRT_Client_Compile_Args, SAME(client), SAME(program), PAIR(options, compile_options),
         PAIR(options_size, compile_options_size), SAME(executable))
  STRUCT(LoadedExecutableDestroy, PJRT_LoadedExecutable_Destroy_Args, SAME(executable))
  STRUCT(LoadedExecutableGetExecutable, PJRT_LoadedExecutable_GetExecutable_Args, PAIR(loaded, loaded_executable), SAME(executable))
  STRUCT(ExecutableDestroy, PJRT_Executable_Destroy_Args, SAME(executable))
  STRUCT(ExecutableNumOutputs, PJRT_Executable_NumOutputs_Args, SAME(num_outputs))
  STRUCT(ExecutableSerialize, PJRT_Executable_Serialize_Args, SAME(executable), PAIR(bytes, serialized_bytes),
         PAIR(bytes_size, serialized_bytes_size), PAIR(serialized, serialized_executable), PAIR(deleter, serialized_executable_deleter))
  STRUCT(ExecutableDeserializeAndLoad, PJRT_Executable_DeserializeAndLoad_Args, SAME(client), PAIR(bytes, serialized_executable),
         PAIR(bytes_size, serialized_executable_size), PAIR(executable, loaded_executable))
  { // later releases have more fields than the header
    using Ours = c::ExecutableGetCompiledMemoryStats;
    using Theirs = PJRT_Executable_GetCompiledMemoryStats_Args;
    check({SAME(executable), PAIR(temp_size, temp_size_in_bytes), PAIR(host_temp_size, host_temp_size_in_bytes),
           PAIR(peak_memory, peak_memory_in_bytes)});
  }
}

TEST(PjrtCApi, Compilers) {
  STRUCT(TopologyDescriptionCreate, PJRT_TopologyDescription_Create_Args, PAIR(name, topology_name), PAIR(name_size, topology_name_size),
         PAIR(options, create_options), SAME(num_options), SAME(topology))
  STRUCT(TopologyDescriptionText, PJRT_TopologyDescription_PlatformName_Args, SAME(topology), PAIR(text, platform_name),
         PAIR(text_size, platform_name_size))
  STRUCT(TopologyDescriptionText, PJRT_TopologyDescription_PlatformVersion_Args, PAIR(text, platform_version),
         PAIR(text_size, platform_version_size))
  STRUCT(TopologyDescriptionGetDeviceDescriptions, PJRT_TopologyDescription_GetDeviceDescriptions_Args, SAME(topology), SAME(descriptions),
         SAME(num_descriptions))
  STRUCT(Compile, PJRT_Compile_Args, SAME(topology), SAME(program), PAIR(options, compile_options),
         PAIR(options_size, compile_options_size), SAME(client), SAME(executable))
  STRUCT(ExecutableGetCostAnalysis, PJRT_Executable_GetCostAnalysis_Args, SAME(executable), SAME(num_properties), SAME(properties))
  STRUCT(ExecutableOptimizedProgram, PJRT_Executable_OptimizedProgram_Args, SAME(executable), SAME(program))
}

TEST(PjrtCApi, Runs) {
  STRUCT(ExecuteOptions, PJRT_ExecuteOptions, SAME(send_callbacks), SAME(recv_callbacks), SAME(num_send_ops), SAME(num_recv_ops),
         SAME(launch_id), SAME(non_donatable_input_indices), SAME(num_non_donatable_input_indices), SAME(context), SAME(call_location),
         SAME(num_tasks), SAME(task_ids), SAME(incarnation_ids))
  STRUCT(LoadedExecutableExecute, PJRT_LoadedExecutable_Execute_Args, SAME(executable), SAME(options), SAME(argument_lists),
         SAME(num_devices), SAME(num_args), SAME(output_lists), SAME(device_complete_events), SAME(execute_device))
}

TEST(PjrtCApi, Buffers) {
  STRUCT(BufferIsDeleted, PJRT_Buffer_IsDeleted_Args, SAME(buffer), SAME(is_deleted))
  STRUCT(BufferDestroy, PJRT_Buffer_Destroy_Args, SAME(buffer))
  STRUCT(ClientBufferFromHostBuffer, PJRT_Client_BufferFromHostBuffer_Args, SAME(client), SAME(data), SAME(type), SAME(dims),
         SAME(num_dims), SAME(byte_strides), SAME(num_byte_strides), PAIR(semantics, host_buffer_semantics), SAME(device), SAME(memory),
         SAME(device_layout), SAME(done_with_host_buffer), SAME(buffer))
  STRUCT(TiledLayout, PJRT_Buffer_MemoryLayout_Tiled, SAME(minor_to_major), SAME(minor_to_major_size), SAME(tile_dims), SAME(num_tiles))
  STRUCT(HostLayout, PJRT_Buffer_MemoryLayout, SAME(tiled), SAME(type))
  STRUCT(BufferToHostBuffer, PJRT_Buffer_ToHostBuffer_Args, SAME(src), SAME(host_layout), SAME(dst), SAME(dst_size), SAME(event))
}

// clang-format on

TEST(PjrtCApi, Table) {
  EXPECT_EQ(offsetof(c::Api, version), offsetof(PJRT_Api, pjrt_api_version));
  using Ours = c::ApiVersion;
  using Theirs = PJRT_Api_Version;
  check({PAIR(major, major_version), PAIR(minor, minor_version)});
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
  GTEST_SKIP() << "PJRT's header is not here: run `tools/compilers/wheels.py --header` and configure again";
}

#endif
