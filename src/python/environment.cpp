// Environment variables for the Python package, read by the same parser as those of C++.
#include "core/env.h"
#include "python/bindings.h"

namespace torch_xla {

void init_environment(py::module_& m) {
  m.def("_env_text", &env::text, py::arg("name"), py::arg("otherwise") = "");
  m.def("_env_flag", &env::flag, py::arg("name"), py::arg("otherwise"));
  m.def("_env_share", &env::share, py::arg("name"), py::arg("otherwise"));
}

} // namespace torch_xla
