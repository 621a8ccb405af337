// The parts of the module _XLAC, one file per topic. Names of the original's _XLAC stay for programs, even if nothing here calls them.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "engine/engine.h"

namespace py = pybind11;

namespace torch_xla {

// An option of a plugin's. Throws cast_error for types that it cannot have.
NamedValue to_option(py::handle value);
// The number of the device with a name such as "xla:1"; "" and "xla" name the thread's own. Throws UserError if it does not exist.
int device_index(const std::string& name);

void init_errors(py::module_& m);
void init_metrics(py::module_& m);
void init_sync(py::module_& m);
void init_device(py::module_& m);
void init_plugins(py::module_& m);
void init_random(py::module_& m);
void init_control(py::module_& m);
void init_sharding(py::module_& m);
void init_replay(py::module_& m);
void init_debug(py::module_& m);
void init_observer(py::module_& m);
void init_environment(py::module_& m);
void init_source_lines(py::module_& m);

} // namespace torch_xla
