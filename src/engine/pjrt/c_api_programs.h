// The PJRT C API's structs of arguments for programs and buffers; see c_api.h.
#pragma once

#include "engine/pjrt/c_api.h"

namespace torch_xla::pjrt::c {

// ---- Programs ----
struct Program {
  Head head;
  char* code; // "mlir": text or bytecode; only read by Client_Compile
  size_t code_size;
  const char* format;
  size_t format_size;
};
XLA_PJRT_STRUCT_SIZE(Program, format_size);

struct ClientCompile {
  Head head;
  Client* client;
  const Program* program;
  const char* options; // a CompileOptionsProto
  size_t options_size;
  LoadedExecutable* executable; // out
};
XLA_PJRT_STRUCT_SIZE(ClientCompile, executable);

struct LoadedExecutableDestroy {
  Head head;
  LoadedExecutable* executable;
};
XLA_PJRT_STRUCT_SIZE(LoadedExecutableDestroy, executable);

struct LoadedExecutableGetExecutable {
  Head head;
  LoadedExecutable* loaded;
  Executable* executable; // out; the caller destroys it
};
XLA_PJRT_STRUCT_SIZE(LoadedExecutableGetExecutable, executable);

struct ExecutableDestroy {
  Head head;
  Executable* executable;
};
XLA_PJRT_STRUCT_SIZE(ExecutableDestroy, executable);

struct ExecutableNumOutputs {
  Head head;
  Executable* executable;
  size_t num_outputs; // out
};
XLA_PJRT_STRUCT_SIZE(ExecutableNumOutputs, num_outputs);

// Bytes; the last two came with later versions.
struct ExecutableGetCompiledMemoryStats {
  Head head;
  Executable* executable;
  int64_t generated_code_size; // out, as all that follow
  int64_t argument_size;
  int64_t output_size;
  int64_t alias_size;
  int64_t temp_size;
  int64_t host_generated_code_size;
  int64_t host_argument_size;
  int64_t host_output_size;
  int64_t host_alias_size;
  int64_t host_temp_size;
  int64_t peak_memory;
  int64_t total_size;
};
XLA_PJRT_STRUCT_SIZE(ExecutableGetCompiledMemoryStats, total_size);

struct ExecutableSerialize {
  Head head;
  const Executable* executable;
  const char* bytes; // out; backed by `serialized`
  size_t bytes_size; // out
  SerializedExecutable* serialized; // out
  void (*deleter)(SerializedExecutable* serialized); // out
};
XLA_PJRT_STRUCT_SIZE(ExecutableSerialize, deleter);

struct ExecutableDeserializeAndLoad {
  Head head;
  Client* client;
  const char* bytes;
  size_t bytes_size;
  LoadedExecutable* executable; // out
  const char* options; // null: those of the executable
  size_t options_size;
};
XLA_PJRT_STRUCT_SIZE(ExecutableDeserializeAndLoad, options_size);

struct ExecuteOptions {
  Head head;
  void** send_callbacks;
  void** recv_callbacks;
  size_t num_send_ops;
  size_t num_recv_ops;
  int launch_id;
  const int64_t* non_donatable_input_indices;
  size_t num_non_donatable_input_indices;
  void* context;
  const char* call_location;
  size_t num_tasks;
  int* task_ids;
  int64_t* incarnation_ids;
};
XLA_PJRT_STRUCT_SIZE(ExecuteOptions, incarnation_ids);

struct LoadedExecutableExecute {
  Head head;
  LoadedExecutable* executable;
  ExecuteOptions* options;
  Buffer* const* const* argument_lists; // [num_devices][num_args]
  size_t num_devices;
  size_t num_args;
  Buffer** const* output_lists; // [num_devices][number of outputs]: filled
  Event** device_complete_events; // null or [num_devices]: filled; the caller destroys them
  Device* execute_device; // null: the device that the program was compiled for
};
XLA_PJRT_STRUCT_SIZE(LoadedExecutableExecute, execute_device);

// ---- Buffers ----
enum class BufferType : int {
  kInvalid = 0,
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 13,
  kC64 = 14,
  kC128 = 15,
  kF8E5M2 = 16,
  kF8E4M3FN = 17,
  kF8E5M2FNUZ = 19,
  kF8E4M3FNUZ = 20,
};

enum class HostBufferSemantics : int {
  kImmutableOnlyDuringCall = 0, // the memory is free when the call returns
  kImmutableUntilTransferCompletes = 1,
  kImmutableZeroCopy = 2,
  kMutableZeroCopy = 3,
};

struct ClientBufferFromHostBuffer {
  Head head;
  Client* client;
  const void* data;
  BufferType type;
  const int64_t* dims;
  size_t num_dims;
  const int64_t* byte_strides; // null: row-major
  size_t num_byte_strides;
  HostBufferSemantics semantics;
  Device* device;
  Memory* memory; // null: the device's default memory
  MemoryLayout* device_layout; // null: row-major
  Event* done_with_host_buffer; // out; the caller destroys it
  Buffer* buffer; // out
};
XLA_PJRT_STRUCT_SIZE(ClientBufferFromHostBuffer, buffer);

struct TiledLayout {
  Head head;
  const int64_t* minor_to_major;
  size_t minor_to_major_size;
  const int64_t* tile_dims;
  const size_t* tile_dim_sizes;
  size_t num_tiles;
};
XLA_PJRT_STRUCT_SIZE(TiledLayout, num_tiles);

enum class LayoutType : int { kTiled = 0, kStrides = 1 };

struct HostLayout {
  Head head;
  TiledLayout tiled; // a union in PJRT; this is its larger member
  LayoutType type;
};
XLA_PJRT_STRUCT_SIZE(HostLayout, type);

struct BufferToHostBuffer {
  Head head;
  Buffer* src;
  HostLayout* host_layout; // null: as on the device
  void* dst;
  size_t dst_size; // bytes
  Event* event; // out; the caller destroys it
};
XLA_PJRT_STRUCT_SIZE(BufferToHostBuffer, event);

struct BufferIsDeleted {
  Head head;
  Buffer* buffer;
  bool is_deleted; // out
};
XLA_PJRT_STRUCT_SIZE(BufferIsDeleted, is_deleted);

struct BufferDestroy {
  Head head;
  Buffer* buffer;
};
XLA_PJRT_STRUCT_SIZE(BufferDestroy, buffer);

} // namespace torch_xla::pjrt::c
