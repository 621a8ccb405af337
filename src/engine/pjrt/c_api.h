// Our own declarations of the part of the PJRT C API that this engine calls: the layouts are PJRT's, the names follow this project's style.
// tests/cpp/pjrt_c_api_test.cpp compares them with pjrt_c_api.h. Unless a comment says otherwise, pointers from an entry live as long as
// the object in its arguments, and `size` fields count characters.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_xla::pjrt::c {

// Objects of the plugin.
struct Error;
struct Event;
struct Client;
struct Device;
struct DeviceDescription;
struct Memory;
struct Buffer;
struct Executable;
struct LoadedExecutable;
struct SerializedExecutable;
struct MemoryLayout; // never given: every layout here is the default one
struct Extension;

// The first member of each struct of arguments. struct_size ends at the last field that the caller knows.
struct Head {
  size_t struct_size;
  Extension* extensions;
};

// Size of T up to the end of its last field, without padding: a newer version may have a field there.
template <typename T>
inline constexpr size_t kStructSize = 0;
#define XLA_PJRT_STRUCT_SIZE(T, last) \
  template <>                         \
  inline constexpr size_t kStructSize<T> = offsetof(T, last) + sizeof(T::last)

// Arguments with their size set and all else zero.
template <typename T>
T make() {
  static_assert(kStructSize<T> > 0);
  T args{};
  args.head.struct_size = kStructSize<T>;
  return args;
}

// ---- Errors and events ----
enum class ErrorCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

struct ErrorDestroy {
  Head head;
  Error* error;
};
XLA_PJRT_STRUCT_SIZE(ErrorDestroy, error);

struct ErrorMessage {
  Head head;
  const Error* error;
  const char* message; // out
  size_t message_size; // out
};
XLA_PJRT_STRUCT_SIZE(ErrorMessage, message_size);

struct ErrorGetCode {
  Head head;
  const Error* error;
  ErrorCode code; // out
};
XLA_PJRT_STRUCT_SIZE(ErrorGetCode, code);

// Event_Destroy and Event_Await.
struct EventArgs {
  Head head;
  Event* event;
};
XLA_PJRT_STRUCT_SIZE(EventArgs, event);

struct EventOnReady {
  Head head;
  Event* event;
  void (*callback)(Error* error, void* user_arg); // destroys the error, which may be null
  void* user_arg;
};
XLA_PJRT_STRUCT_SIZE(EventOnReady, user_arg);

// ---- Plugin and client ----
enum class NamedValueType : int { kString = 0, kInt64 = 1, kInt64List = 2, kFloat = 3, kBool = 4 };

struct NamedValue {
  Head head;
  const char* name;
  size_t name_size;
  NamedValueType type;
  union {
    const char* string_value;
    int64_t int64_value;
    const int64_t* int64_array_value;
    float float_value;
    bool bool_value;
  };
  size_t value_size; // characters or list entries; else 1
};
XLA_PJRT_STRUCT_SIZE(NamedValue, value_size);

struct PluginInitialize {
  Head head;
};
XLA_PJRT_STRUCT_SIZE(PluginInitialize, head);

struct PluginAttributes {
  Head head;
  const NamedValue* attributes; // out; live as long as the plugin
  size_t num_attributes; // out
};
XLA_PJRT_STRUCT_SIZE(PluginAttributes, num_attributes);

struct ClientCreate {
  Head head;
  const NamedValue* options;
  size_t num_options;
  void* get_callback; // these four serve clients of several processes
  void* get_callback_arg;
  void* put_callback;
  void* put_callback_arg;
  Client* client; // out
  void* try_get_callback;
  void* try_get_callback_arg;
};
XLA_PJRT_STRUCT_SIZE(ClientCreate, try_get_callback_arg);

struct ClientDestroy {
  Head head;
  Client* client;
};
XLA_PJRT_STRUCT_SIZE(ClientDestroy, client);

// Client_PlatformName and Client_PlatformVersion.
struct ClientText {
  Head head;
  Client* client;
  const char* text; // out
  size_t text_size; // out
};
XLA_PJRT_STRUCT_SIZE(ClientText, text_size);

struct ClientAddressableDevices {
  Head head;
  Client* client;
  Device* const* devices; // out
  size_t num_devices; // out
};
XLA_PJRT_STRUCT_SIZE(ClientAddressableDevices, num_devices);

// ---- Devices ----
struct DeviceGetDescription {
  Head head;
  Device* device;
  DeviceDescription* description; // out
};
XLA_PJRT_STRUCT_SIZE(DeviceGetDescription, description);

struct DeviceDescriptionId {
  Head head;
  DeviceDescription* description;
  int id; // out; the device's name in compile options
};
XLA_PJRT_STRUCT_SIZE(DeviceDescriptionId, id);

struct DeviceDescriptionKind {
  Head head;
  DeviceDescription* description;
  const char* kind; // out
  size_t kind_size; // out
};
XLA_PJRT_STRUCT_SIZE(DeviceDescriptionKind, kind_size);

struct DeviceDescriptionAttributes {
  Head head;
  DeviceDescription* description;
  size_t num_attributes; // out
  const NamedValue* attributes; // out; live as long as the description
};
XLA_PJRT_STRUCT_SIZE(DeviceDescriptionAttributes, attributes);

// Figures are bytes or counts; all except bytes_in_use are valid only if the flag after them is true.
struct DeviceMemoryStats {
  Head head;
  Device* device;
  int64_t bytes_in_use; // out, as all that follow
  int64_t peak_bytes_in_use;
  bool peak_bytes_in_use_is_set;
  int64_t num_allocs;
  bool num_allocs_is_set;
  int64_t largest_alloc_size;
  bool largest_alloc_size_is_set;
  int64_t bytes_limit;
  bool bytes_limit_is_set;
  int64_t bytes_reserved;
  bool bytes_reserved_is_set;
  int64_t peak_bytes_reserved;
  bool peak_bytes_reserved_is_set;
  int64_t bytes_reservable_limit;
  bool bytes_reservable_limit_is_set;
  int64_t largest_free_block_bytes;
  bool largest_free_block_bytes_is_set;
  int64_t pool_bytes;
  bool pool_bytes_is_set;
  int64_t peak_pool_bytes;
  bool peak_pool_bytes_is_set;
};
XLA_PJRT_STRUCT_SIZE(DeviceMemoryStats, peak_pool_bytes_is_set);

} // namespace torch_xla::pjrt::c
