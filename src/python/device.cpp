// Devices and their memory.
#include "device/device.h"

#include <pybind11/stl.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/autograd/python_variable.h>

#include "core/env.h"
#include "core/errors.h"
#include "core/first_use.h"
#include "core/metrics.h"
#include "core/process.h"
#include "core/threads.h"
#include "engine/engine.h"
#include "program/compile_settings.h"
#include "python/bindings.h"

namespace torch_xla {
namespace {

int index_of_name(const std::string& name) {
  c10::Device device(name);
  XLA_CHECK(device.type() == kXlaType, "expected an xla device, but got ", name);
  return device.has_index() ? device.index() : current_device();
}

std::string hardware_name(int index) {
  return engine().hardware() + ":" + std::to_string(index);
}

std::vector<std::string> hardware_names(int64_t processes) {
  std::vector<std::string> all;
  for (int index = 0; index < processes * num_devices(); ++index) {
    all.push_back(hardware_name(index));
  }
  return all;
}

py::dict memory_info(const std::string& device) {
  const EngineMemoryInfo info = engine().memory_info(device_index(device));
  py::dict dict;
  dict["bytes_used"] = info.bytes_used;
  dict["bytes_limit"] = info.bytes_limit;
  dict["peak_bytes_used"] = info.peak_bytes_used;
  return dict;
}

py::dict attributes(int device) {
  check_device(device);
  py::dict dict;
  dict["name"] = hardware_name(device);
  for (const auto& [key, value] : engine().attributes(device)) {
    dict[py::str(key)] = value;
  }
  return dict;
}

// Tensors that share memory have the same number, as long as they live. Libraries find tied weights by it.
uintptr_t tensor_id(py::handle tensor) {
  if (!THPVariable_Check(tensor.ptr())) {
    throw py::type_error("expected a tensor");
  }
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  TORCH_CHECK(t.device().is_privateuseone(), "expected a tensor on the device xla, but got one on ", t.device());
  return reinterpret_cast<uintptr_t>(t.storage().data());
}

// A tensor set into the storage does not extend it: a tensor outside of it is an error.
void fix_storage_size(py::handle storage) {
  if (!THPStorage_Check(storage.ptr())) {
    throw py::type_error("expected a storage");
  }
  THPStorage_Unpack(storage.ptr()).unsafeGetStorageImpl()->set_resizable(false);
}

py::list tensors_from_aten(const py::list& tensors, const std::vector<std::string>& devices) {
  XLA_CHECK_KIND(Value, tensors.size() == devices.size(), "there are ", tensors.size(), " tensors for ", devices.size(), " devices");
  py::list moved;
  for (size_t i = 0; i < devices.size(); ++i) {
    moved.append(tensors[i].attr("to")(devices[i]));
  }
  return moved;
}

void take_compile_options(const py::dict& options, const std::optional<std::string>& device) {
  NamedValues values;
  for (auto [name, value] : options) {
    bool fits = py::isinstance<py::str>(value) || py::isinstance<py::int_>(value) || py::isinstance<py::float_>(value); // bool is an int
    std::string text = py::str(name);
    XLA_CHECK_KIND(Type, fits, "compile options are str, bool, int or float, but ", text, " is not");
    values[text] = to_option(value);
  }
  const py::gil_scoped_release no_gil;
  set_compile_options(std::move(values), device ? std::make_optional(device_index(*device)) : std::nullopt);
}

// If Python cannot do its part, the use fails.
void import_first_use() {
  py::gil_scoped_acquire gil;
  try {
    py::module_::import("torch_xla._first_use");
  } catch (const py::error_already_set& error) {
    throw UserError(ErrorKind::Runtime, str("the device xla cannot be used: ", std::string(error.what())));
  }
}

// The words of torch_xla.backends.
const char* precision_of_products() {
  constexpr const char* kWords[] = {"default", "high", "highest"}; // in the order of Precision::Level
  return kWords[read_precision().products];
}

py::object backends() {
  return py::module_::import("torch_xla.backends");
}

} // namespace

int device_index(const std::string& name) {
  int index = name.empty() ? current_device() : index_of_name(name);
  check_device(index);
  return index;
}

void init_device(py::module_& m) {
  first_use::set(&import_first_use);
  m.def("_xla_num_devices", &num_devices);
  m.def("_xla_check_device", &check_device, py::arg("index"));
  m.def("_check_choice", &check_choice);
  m.def("_xla_get_default_device", [] {
    check_device(current_device()); // with a plugin, that it opens
    return "xla:" + std::to_string(current_device());
  });
  m.def("_xla_get_default_device_ordinal", [] { return int{current_device()}; });
  m.def("_xla_get_devices", [] { return hardware_names(1); });
  m.def("_xla_get_all_devices", [] { return hardware_names(env::integer_or(env::variable("WORLD_SIZE"), 1)); });
  m.def("_xla_real_devices", [](const py::object& devices) {
    return py::module_::import("torch_xla.core.xla_model").attr("xla_real_devices")(devices);
  });
  m.def("_xla_hardware", [] { return engine().hardware(); });
  m.def("_xla_device_attributes", &attributes, py::arg("index"));
  m.def("_xla_current_device", [] { return int{current_device()}; });
  m.def("_xla_set_current_device", [](int index) { set_current_device(static_cast<c10::DeviceIndex>(index)); });
  m.def("_xla_get_tensor_id", &tensor_id, py::arg("tensor"));
  m.def("_fix_storage_size", &fix_storage_size, py::arg("storage"));
  m.def("_xla_memory_info", &memory_info, py::arg("device") = "");
  m.def("_xla_empty_cache", &empty_caches, py::call_guard<py::gil_scoped_release>());
  m.def("_xla_tensors_from_aten", &tensors_from_aten, py::arg("tensors"), py::arg("devices"));
  m.def("_set_custom_compile_options", &take_compile_options, py::arg("options"), py::arg("device") = py::none());
  m.def(
      "_xla_set_mat_mul_precision",
      [](const std::string& precision) { backends().attr("set_mat_mul_precision")(precision); },
      py::arg("precision"));
  m.def("_xla_get_mat_mul_precision", [] { return backends().attr("get_mat_mul_precision")(); });
  m.def("_precision_of_products", &precision_of_products);
  m.def("_xla_chosen_device", &chosen_device);
  m.def("_xla_runtime_is_initialized", &process::is_used);
  m.def("_in_bad_fork", &in_bad_fork);
  m.def("_end_team", &end_team);
}

} // namespace torch_xla
