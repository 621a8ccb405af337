// What tests and the debug functions of torch_xla look at: the pending trace, leak counters, switches. The trace is read without the GIL,
// as another thread may compile it for long.
#include "core/env.h"
#include "python/bindings.h"
#include "tensor/api.h"

namespace torch_xla {
namespace {

// The original prints the graph of the given tensors; here one trace holds all that is pending.
std::string tensors_text(const py::object& /*tensors*/) {
  const py::gil_scoped_release no_gil;
  return pending_graph_text();
}

} // namespace

void init_debug(py::module_& m) {
  m.def("_get_xla_tensors_text", &tensors_text, py::arg("tensors") = py::none());
  m.def("_pending_graph_text", &pending_graph_text, py::call_guard<py::gil_scoped_release>());
  m.def("_live_nodes", &live_nodes, py::call_guard<py::gil_scoped_release>());
  m.def("_live_cells", &live_cells, py::call_guard<py::gil_scoped_release>());
  m.def("_debug_level", &env::debug_level);
  m.def("_set_fusion", &env::set_fusion, py::arg("on"));
  m.def("_fusion", &env::fusion);
  m.def("_set_lazy", &env::set_lazy, py::arg("on"));
  m.def("_lazy", &env::lazy);
  m.def("_cache_dir", &env::cache_dir);
}

} // namespace torch_xla
