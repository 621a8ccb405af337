// Devices and their memory.
#include "device/device.h"

#include "core/metrics.h"
#include "engine/engine.h"
#include "python/bindings.h"

namespace torch_xla {
namespace {

std::string logical_name(int index) {
  return "xla:" + std::to_string(index);
}

std::string hardware_name(int index) {
  return engine().hardware() + ":" + std::to_string(index);
}

std::vector<std::string> names(std::string (*name)(int)) {
  std::vector<std::string> all;
  for (int index = 0; index < device_count(); ++index) {
    all.push_back(name(index));
  }
  return all;
}

py::dict memory_info(const std::string& /*device*/) {
  const EngineMemoryInfo info = engine().memory_info();
  py::dict dict;
  dict["bytes_used"] = info.bytes_used;
  dict["bytes_limit"] = info.bytes_limit;
  dict["peak_bytes_used"] = info.peak_bytes_used;
  return dict;
}

} // namespace

void init_device(py::module_& m) {
  m.def("_xla_num_devices", [] { return int{device_count()}; });
  m.def("_xla_get_default_device", [] { return logical_name(current_device()); });
  m.def("_xla_get_default_device_ordinal", [] { return int{current_device()}; });
  m.def("_xla_get_devices", [] { return names(&hardware_name); });
  m.def("_xla_get_logical_devices", [] { return names(&logical_name); });
  m.def("_xla_current_device", [] { return int{current_device()}; });
  m.def("_xla_set_current_device", [](int index) { set_current_device(static_cast<c10::DeviceIndex>(index)); });
  m.def("_xla_memory_info", &memory_info, py::arg("device") = "");
  m.def("_xla_offer_plugin", &offer_plugin, py::arg("device"), py::arg("path"));
  m.def("_in_bad_fork", &in_bad_fork);
}

} // namespace torch_xla
