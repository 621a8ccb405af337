// The PJRT C API's table of entries that this engine uses; see c_api.h.
#pragma once

#include "engine/pjrt/c_api.h"
#include "engine/pjrt/c_api_compile.h"
#include "engine/pjrt/c_api_programs.h"

namespace torch_xla::pjrt::c {

// ---- The table of entries ---- X(name, position in the table, struct of arguments, needed). A plugin may lack entries that are not
// needed. Each takes a pointer to its arguments and returns an error to be destroyed, or null; Error_Destroy and Error_Message return
// nothing.
#define XLA_PJRT_ENTRIES(X)                                                                         \
  X(Plugin_Initialize, 3, PluginInitialize, false)                                                  \
  X(Plugin_Attributes, 4, PluginAttributes, false)                                                  \
  X(Error_GetCode, 2, ErrorGetCode, true)                                                           \
  X(Event_Destroy, 5, EventArgs, true)                                                              \
  X(Event_Await, 8, EventArgs, true)                                                                \
  X(Event_OnReady, 9, EventOnReady, false)                                                          \
  X(Client_Create, 10, ClientCreate, true)                                                          \
  X(Client_Destroy, 11, ClientDestroy, true)                                                        \
  X(Client_PlatformName, 12, ClientText, true)                                                      \
  X(Client_PlatformVersion, 14, ClientText, true)                                                   \
  X(Client_AddressableDevices, 16, ClientAddressableDevices, true)                                  \
  X(Client_Compile, 20, ClientCompile, true)                                                        \
  X(Client_BufferFromHostBuffer, 22, ClientBufferFromHostBuffer, true)                              \
  X(DeviceDescription_Id, 23, DeviceDescriptionId, true)                                            \
  X(DeviceDescription_Attributes, 25, DeviceDescriptionAttributes, false)                           \
  X(DeviceDescription_Kind, 26, DeviceDescriptionKind, true)                                        \
  X(Device_GetDescription, 29, DeviceGetDescription, true)                                          \
  X(Device_MemoryStats, 34, DeviceMemoryStats, false)                                               \
  X(Executable_Destroy, 40, ExecutableDestroy, true)                                                \
  X(Executable_NumOutputs, 44, ExecutableNumOutputs, true)                                          \
  X(Executable_GetCostAnalysis, 46, ExecutableGetCostAnalysis, false)                               \
  X(Executable_OptimizedProgram, 48, ExecutableOptimizedProgram, false)                             \
  X(Executable_Serialize, 49, ExecutableSerialize, false)                                           \
  X(LoadedExecutable_Destroy, 50, LoadedExecutableDestroy, true)                                    \
  X(LoadedExecutable_GetExecutable, 51, LoadedExecutableGetExecutable, true)                        \
  X(LoadedExecutable_Execute, 55, LoadedExecutableExecute, true)                                    \
  X(Executable_DeserializeAndLoad, 56, ExecutableDeserializeAndLoad, false)                         \
  X(Buffer_Destroy, 58, BufferDestroy, true)                                                        \
  X(Buffer_IsDeleted, 68, BufferIsDeleted, false)                                                   \
  X(Buffer_ToHostBuffer, 70, BufferToHostBuffer, true)                                              \
  X(TopologyDescription_Create, 82, TopologyDescriptionCreate, false)                               \
  X(TopologyDescription_PlatformName, 84, TopologyDescriptionText, false)                           \
  X(TopologyDescription_PlatformVersion, 85, TopologyDescriptionText, false)                        \
  X(TopologyDescription_GetDeviceDescriptions, 86, TopologyDescriptionGetDeviceDescriptions, false) \
  X(Compile, 89, Compile, false)                                                                    \
  X(Executable_GetCompiledMemoryStats, 96, ExecutableGetCompiledMemoryStats, false)

constexpr size_t kErrorDestroyPosition = 0;
constexpr size_t kErrorMessagePosition = 1;
constexpr size_t kNumPositions = 97; // up to the last one above

struct ApiVersion {
  Head head;
  int major;
  int minor;
};
XLA_PJRT_STRUCT_SIZE(ApiVersion, minor);

using AnyEntry = void (*)();

// What the plugin's function GetPjrtApi() returns. It may be shorter (an older plugin) or longer.
struct Api {
  Head head;
  ApiVersion version;
  AnyEntry entries[kNumPositions];
};

} // namespace torch_xla::pjrt::c
