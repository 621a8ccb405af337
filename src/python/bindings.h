// The parts of the module _XLAC, one file per topic.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace torch_xla {

void init_errors(py::module_& m);
void init_metrics(py::module_& m);
void init_sync(py::module_& m);
void init_device(py::module_& m);
void init_random(py::module_& m);
void init_debug(py::module_& m);
void init_environment(py::module_& m);
void init_source_lines(py::module_& m);

} // namespace torch_xla
