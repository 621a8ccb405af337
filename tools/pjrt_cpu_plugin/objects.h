// What the C API's opaque pointers point to in this plugin, and its errors.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "xla/pjrt/c/pjrt_c_api.h"
#include "xla/pjrt/pjrt_client.h"

struct PJRT_Error {
  absl::Status status;
};

struct PJRT_Event {
  xla::Future<> future;
};

struct PJRT_DeviceDescription {
  int id = 0;
  std::string kind;
  std::string text;
};

struct PJRT_Memory {
  xla::PjRtMemorySpace* space = nullptr;
  std::string kind;
  std::string text;
};

struct PJRT_Device {
  xla::PjRtDevice* device = nullptr;
  PJRT_DeviceDescription description;
  PJRT_Memory memory; // the default one
  PJRT_Memory* memories = nullptr;
};

struct PJRT_Client {
  std::unique_ptr<xla::PjRtClient> client;
  std::string platform_name;
  std::string platform_version;
  std::vector<std::unique_ptr<PJRT_Device>> devices;
  std::vector<PJRT_Device*> device_pointers;
};

struct PJRT_Buffer {
  std::unique_ptr<xla::PjRtBuffer> buffer;
  PJRT_Client* client = nullptr;
};

// Shares the loaded executable: the two C objects die in either order.
struct PJRT_Executable {
  std::shared_ptr<xla::PjRtLoadedExecutable> executable;
  std::string name;
  std::string optimized; // backs the program that OptimizedProgram gives
};

struct PJRT_LoadedExecutable {
  std::shared_ptr<xla::PjRtLoadedExecutable> executable;
  PJRT_Client* client = nullptr;
};

struct PJRT_SerializedExecutable {
  std::string bytes;
};

namespace cpu_plugin {

// Null for OK.
inline PJRT_Error* to_error(absl::Status status) {
  return status.ok() ? nullptr : new PJRT_Error{std::move(status)};
}

inline PJRT_Event* ready_event() {
  return new PJRT_Event{xla::Future<>(absl::OkStatus())};
}

} // namespace cpu_plugin

// Returns the error of a status from an entry of the table.
#define RETURN_ERROR(expression)                              \
  do {                                                        \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return cpu_plugin::to_error(std::move(status_));        \
    }                                                         \
  } while (0)
