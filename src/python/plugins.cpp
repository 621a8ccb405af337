// Plugins and targets of compile-only devices, which Python finds; what their compilers say of programs.
#include "core/errors.h"
#include "engine/compile_only.h"
#include "kernels/register.h"
#include "python/bindings.h"

namespace torch_xla {
namespace {

// Python's functions; never destroyed. From a name to (path, options) or None,
py::object* plugin_finder = nullptr;
// and from a name and a target to the members of a CompileTarget after its name, or None.
py::object* target_finder = nullptr;

NamedValues to_options(const py::dict& options) {
  NamedValues values;
  for (auto [name, value] : options) {
    values[py::str(name)] = to_option(value);
  }
  return values;
}

// The result of `find`, with the GIL; its exceptions become UserErrors.
template <typename Find>
auto call_finder(const std::string& device, const Find& find) -> decltype(find()) {
  const py::gil_scoped_acquire gil;
  try {
    return find();
  } catch (const py::error_already_set& error) {
    std::string text = py::str(error.value());
    if (error.matches(PyExc_ValueError)) {
      throw UserError(ErrorKind::Value, str("PJRT_DEVICE=", device, ": ", text));
    }
    std::string type = py::str(error.type().attr("__name__"));
    throw UserError(ErrorKind::Runtime, str("PJRT_DEVICE=", device, ": ", type, ": ", text));
  } catch (const py::cast_error&) {
    throw UserError(ErrorKind::Type, str("PJRT_DEVICE=", device, ": options of a client are str, bool, int, float or a list of int"));
  }
}

std::optional<PluginFile> find_plugin(const std::string& device) {
  return call_finder(device, [&]() -> std::optional<PluginFile> {
    py::object found = (*plugin_finder)(device);
    if (found.is_none()) {
      return std::nullopt;
    }
    auto [path, options] = found.cast<std::pair<std::string, py::dict>>();
    return PluginFile{path, to_options(options)};
  });
}

std::optional<CompileTarget> find_target(const std::string& device, const std::string& name) {
  using Found = std::tuple<std::string, std::string, py::dict, std::map<std::string, std::string>, bool>;
  return call_finder(device, [&]() -> std::optional<CompileTarget> {
    py::object found = (*target_finder)(device, name);
    if (found.is_none()) {
      return std::nullopt;
    }
    auto [path, topology, options, environment, by_client] = found.cast<Found>();
    return CompileTarget{name, path, topology, to_options(options), environment, by_client};
  });
}

void take_plugin_finder(const py::object& find) {
  plugin_finder = new py::object(find);
  set_plugin_finder(&find_plugin);
}

void take_target_finder(const py::object& find) {
  target_finder = new py::object(find);
  set_target_finder(&find_target);
}

py::dict to_dict(const ProgramReportRef& kept) {
  using namespace py::literals;
  const ProgramReport& report = *kept;
  py::dict costs;
  for (const auto& [name, value] : report.costs) {
    costs[py::str(name)] = value;
  }
  auto read_optimized = [kept] { return py::bytes(kept->optimized); }; // many megabytes, which few want
  return py::dict(
      "device"_a = report.device,
      "num_devices"_a = report.num_devices,
      "line"_a = report.line,
      "operations"_a = report.operations,
      "seconds"_a = static_cast<double>(report.compile_ns) * 1e-9,
      "memory_bytes"_a = report.memory_bytes,
      "error"_a = report.error,
      "code_bytes"_a = report.code_bytes,
      "argument_bytes"_a = report.argument_bytes,
      "output_bytes"_a = report.output_bytes,
      "aliased_bytes"_a = report.aliased_bytes,
      "scratch_bytes"_a = report.scratch_bytes,
      "peak_bytes"_a = report.peak_bytes,
      "costs"_a = costs,
      "format"_a = report.format,
      "read_optimized"_a = py::cpp_function(read_optimized));
}

py::list list_reports() {
  py::list list;
  for (const ProgramReportRef& report : program_reports()) {
    list.append(to_dict(report));
  }
  return list;
}

} // namespace

NamedValue to_option(py::handle value) {
  if (py::isinstance<py::bool_>(value)) {
    return value.cast<bool>();
  }
  if (py::isinstance<py::int_>(value)) {
    return value.cast<int64_t>();
  }
  if (py::isinstance<py::float_>(value)) {
    return value.cast<double>();
  }
  if (py::isinstance<py::str>(value)) {
    return value.cast<std::string>();
  }
  return value.cast<std::vector<int64_t>>();
}

void init_plugins(py::module_& m) {
  m.def("_xla_set_plugin_finder", &take_plugin_finder, py::arg("find"));
  m.def("_xla_set_target_finder", &take_target_finder, py::arg("find"));
  m.def("_program_reports", &list_reports);
  m.def("_forget_program_reports", &forget_program_reports);
  m.def("_register_copies_of_meta", &register_copies_of_meta);
  m.def("_why_no_values", [] { return engine().why_no_values(); });
}

} // namespace torch_xla
