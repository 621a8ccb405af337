// A PJRT plugin for tests: XLA's CPU client, as the tensorflow-cpu wheel carries it, behind the entries of the C API that torch_xla calls.
// One translation unit: XLA's headers take most of the time to compile. Entries that are missing are null.
#include <cstring>

#include "buffers.h"
#include "executables.h"
#include "objects.h"
#include "xla/pjrt/plugin/xla_cpu/xla_cpu_pjrt_client.h"

namespace cpu_plugin {
namespace {

void fill_error_entries(PJRT_Api& api) {
  api.PJRT_Error_Destroy = [](PJRT_Error_Destroy_Args* args) { delete args->error; };
  api.PJRT_Error_Message = [](PJRT_Error_Message_Args* args) {
    absl::string_view message = args->error->status.message();
    args->message = message.data();
    args->message_size = message.size();
  };
  api.PJRT_Error_GetCode = [](PJRT_Error_GetCode_Args* args) -> PJRT_Error* {
    args->code = static_cast<PJRT_Error_Code>(args->error->status.code()); // the same numbers
    return nullptr;
  };
}

void fill_event_entries(PJRT_Api& api) {
  api.PJRT_Event_Destroy = [](PJRT_Event_Destroy_Args* args) -> PJRT_Error* {
    delete args->event;
    return nullptr;
  };
  api.PJRT_Event_IsReady = [](PJRT_Event_IsReady_Args* args) -> PJRT_Error* {
    args->is_ready = args->event->future.IsReady();
    return nullptr;
  };
  api.PJRT_Event_Error = [](PJRT_Event_Error_Args* args) { return to_error(args->event->future.Await()); };
  api.PJRT_Event_Await = [](PJRT_Event_Await_Args* args) { return to_error(args->event->future.Await()); };
  api.PJRT_Event_OnReady = [](PJRT_Event_OnReady_Args* args) -> PJRT_Error* {
    args->event->future.OnReady([f = args->callback, arg = args->user_arg](absl::Status status) { f(to_error(status), arg); });
    return nullptr;
  };
}

absl::StatusOr<std::unique_ptr<PJRT_Device>> wrap(xla::PjRtDevice* device) {
  auto memory = device->default_memory_space();
  if (!memory.ok()) {
    return memory.status();
  }
  auto wrapped = std::make_unique<PJRT_Device>();
  wrapped->device = device;
  wrapped->description = {device->id(), std::string(device->device_kind()), std::string(device->DebugString())};
  wrapped->memory = {*memory, std::string((*memory)->kind()), std::string((*memory)->DebugString())};
  wrapped->memories = &wrapped->memory;
  return wrapped;
}

// Options: "cpu_device_count" (int64), by default that of XLA_FLAGS=--xla_force_host_platform_device_count, or 1. Unknown ones are errors.
absl::StatusOr<xla::CpuClientOptions> parse_options(const PJRT_NamedValue* options, size_t count) {
  xla::CpuClientOptions parsed;
  for (size_t i = 0; i < count; ++i) {
    absl::string_view name(options[i].name, options[i].name_size);
    if (name != "cpu_device_count" || options[i].type != PJRT_NamedValue_kInt64) {
      return absl::InvalidArgumentError(absl::StrCat("unknown client option \"", name, "\" or wrong type of its value"));
    }
    parsed.cpu_device_count = static_cast<int>(options[i].int64_value);
  }
  return parsed;
}

PJRT_Error* create_client(PJRT_Client_Create_Args* args) {
  auto options = parse_options(args->create_options, args->num_options);
  RETURN_ERROR(options.status());
  auto created = xla::GetXlaPjrtCpuClient(*std::move(options));
  RETURN_ERROR(created.status());
  auto client = std::make_unique<PJRT_Client>();
  client->client = *std::move(created);
  client->platform_name = std::string(client->client->platform_name());
  client->platform_version = std::string(client->client->platform_version());
  for (xla::PjRtDevice* device : client->client->addressable_devices()) {
    auto wrapped = wrap(device);
    RETURN_ERROR(wrapped.status());
    client->device_pointers.push_back(wrapped->get());
    client->devices.push_back(*std::move(wrapped));
  }
  args->client = client.release();
  return nullptr;
}

void fill_client_entries(PJRT_Api& api) {
  api.PJRT_Plugin_Initialize = [](PJRT_Plugin_Initialize_Args*) -> PJRT_Error* { return nullptr; };
  api.PJRT_Plugin_Attributes = [](PJRT_Plugin_Attributes_Args* args) -> PJRT_Error* {
    static const int64_t kStablehlo[] = {1, 13, 7};
    static PJRT_NamedValue value = {PJRT_NamedValue_STRUCT_SIZE, nullptr, "stablehlo_current_version", 25, PJRT_NamedValue_kInt64List};
    value.int64_array_value = kStablehlo;
    value.value_size = 3;
    args->attributes = &value;
    args->num_attributes = 1;
    return nullptr;
  };
  api.PJRT_Client_Create = create_client;
  api.PJRT_Client_Destroy = [](PJRT_Client_Destroy_Args* args) -> PJRT_Error* {
    delete args->client;
    return nullptr;
  };
  api.PJRT_Client_PlatformName = [](PJRT_Client_PlatformName_Args* args) -> PJRT_Error* {
    args->platform_name = args->client->platform_name.data();
    args->platform_name_size = args->client->platform_name.size();
    return nullptr;
  };
  api.PJRT_Client_PlatformVersion = [](PJRT_Client_PlatformVersion_Args* args) -> PJRT_Error* {
    args->platform_version = args->client->platform_version.data();
    args->platform_version_size = args->client->platform_version.size();
    return nullptr;
  };
  api.PJRT_Client_ProcessIndex = [](PJRT_Client_ProcessIndex_Args* args) -> PJRT_Error* {
    args->process_index = args->client->client->process_index();
    return nullptr;
  };
  api.PJRT_Client_Devices = [](PJRT_Client_Devices_Args* args) -> PJRT_Error* {
    args->devices = args->client->device_pointers.data();
    args->num_devices = args->client->device_pointers.size();
    return nullptr;
  };
  api.PJRT_Client_AddressableDevices = [](PJRT_Client_AddressableDevices_Args* args) -> PJRT_Error* {
    args->addressable_devices = args->client->device_pointers.data();
    args->num_addressable_devices = args->client->device_pointers.size();
    return nullptr;
  };
}

void fill_device_entries(PJRT_Api& api) {
  api.PJRT_Device_GetDescription = [](PJRT_Device_GetDescription_Args* args) -> PJRT_Error* {
    args->device_description = &args->device->description;
    return nullptr;
  };
  api.PJRT_Device_DefaultMemory = [](PJRT_Device_DefaultMemory_Args* args) -> PJRT_Error* {
    args->memory = &args->device->memory;
    return nullptr;
  };
  api.PJRT_Device_LocalHardwareId = [](PJRT_Device_LocalHardwareId_Args* args) -> PJRT_Error* {
    args->local_hardware_id = args->device->device->local_hardware_id().value();
    return nullptr;
  };
  api.PJRT_DeviceDescription_Id = [](PJRT_DeviceDescription_Id_Args* args) -> PJRT_Error* {
    args->id = args->device_description->id;
    return nullptr;
  };
  api.PJRT_DeviceDescription_Kind = [](PJRT_DeviceDescription_Kind_Args* args) -> PJRT_Error* {
    args->device_kind = args->device_description->kind.data();
    args->device_kind_size = args->device_description->kind.size();
    return nullptr;
  };
  api.PJRT_DeviceDescription_DebugString = [](PJRT_DeviceDescription_DebugString_Args* args) -> PJRT_Error* {
    args->debug_string = args->device_description->text.data();
    args->debug_string_size = args->device_description->text.size();
    return nullptr;
  };
  api.PJRT_Memory_Kind = [](PJRT_Memory_Kind_Args* args) -> PJRT_Error* {
    args->kind = args->memory->kind.data();
    args->kind_size = args->memory->kind.size();
    return nullptr;
  };
}

PJRT_Api make_api() {
  PJRT_Api api;
  std::memset(&api, 0, sizeof(api));
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version = {PJRT_Api_Version_STRUCT_SIZE, nullptr, PJRT_API_MAJOR, PJRT_API_MINOR};
  fill_error_entries(api);
  fill_event_entries(api);
  fill_client_entries(api);
  fill_device_entries(api);
  fill_buffer_entries(api);
  fill_executable_entries(api);
  return api;
}

} // namespace
} // namespace cpu_plugin

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = cpu_plugin::make_api();
  return &api;
}
