// What tests and the debug functions of torch_xla look at: the pending trace, leak counters, switches. The trace is read without the GIL,
// as another thread may compile it for long.
#include <torch/csrc/autograd/python_variable.h>

#include "core/env.h"
#include "python/bindings.h"
#include "tensor/api.h"
#include "tensor/barrier.h"
#include "tensor/compile_reason.h"
#include "tensor/pending_graph.h"
#include "tensor/source_line.h"

namespace torch_xla {
namespace {

std::string device_text(const std::string& device) {
  int index = device_index(device);
  const py::gil_scoped_release no_gil;
  return pending_graph_text(index);
}

std::vector<at::Tensor> to_tensors(const std::vector<py::object>& objects) {
  std::vector<at::Tensor> tensors;
  for (const py::object& object : objects) {
    if (!THPVariable_Check(object.ptr())) {
      throw py::type_error("expected tensors, but got " + py::str(py::type::of(object)).cast<std::string>());
    }
    tensors.push_back(THPVariable_Unpack(object.ptr()));
  }
  return tensors;
}

// Of all that is pending on the current device where none are given.
template <GraphFormat format>
std::string tensors_text(const std::vector<py::object>& objects) {
  std::vector<at::Tensor> tensors = to_tensors(objects);
  bool here = tensors.empty() || !tensors[0].is_privateuseone();
  int device = here ? device_index("") : tensors[0].get_device();
  const py::gil_scoped_release no_gil;
  return pending_text(device, tensors, format);
}

std::string tensor_info(const py::object& object) {
  std::vector<at::Tensor> tensors = to_tensors({object});
  const py::gil_scoped_release no_gil;
  return tensor_text(tensors[0]);
}

void barrier(const std::vector<py::object>& objects) {
  std::vector<at::Tensor> tensors = to_tensors(objects);
  const py::gil_scoped_release no_gil;
  optimization_barrier(tensors);
}

// A dict for each of the last compiles, the latest last.
py::list compile_reasons() {
  py::list list;
  for (const CompileReason& reason : CompileHistory::get().reasons()) {
    using namespace py::literals;
    list.append(py::dict(
        "kind"_a = kind_text(reason.kind),
        "what"_a = reason.what,
        "operation"_a = reason.operation,
        "now"_a = reason.now,
        "before"_a = reason.before,
        "device"_a = reason.device,
        "line"_a = location_text(reason.line),
        "line_before"_a = location_text(reason.line_before),
        "line_of_operand"_a = location_text(reason.line_of_operand),
        "nodes"_a = reason.nodes,
        "nodes_before"_a = reason.nodes_before,
        "time_ns"_a = reason.time_ns,
        "cause"_a = reason.cause));
  }
  return list;
}

// A dict for each overload that a row serves.
py::list operators() {
  py::list list;
  for (const ServedOverload& overload : served_overloads()) {
    using namespace py::literals;
    list.append(py::dict(
        "name"_a = overload.name,
        "row"_a = overload.row,
        "fused"_a = overload.fused,
        "complex"_a = overload.complex,
        "plugin_form"_a = overload.has_plugin_form));
  }
  return list;
}

} // namespace

void init_debug(py::module_& m) {
  m.def("_get_xla_tensors_text", &tensors_text<GraphFormat::kText>, py::arg("tensors"));
  m.def("_get_xla_tensors_dot", &tensors_text<GraphFormat::kDot>, py::arg("tensors"));
  m.def("_get_xla_tensors_hlo", &tensors_text<GraphFormat::kStableHlo>, py::arg("tensors"));
  m.def("_get_stablehlo", &tensors_text<GraphFormat::kStableHlo>, py::arg("tensors"));
  m.def("_body_stablehlo", &body_text, py::arg("device"), py::arg("body"));
  m.def("_get_xla_tensor_debug_info", &tensor_info, py::arg("tensor"));
  m.def("_get_current_graph_name", [] { return graph_name(); });
  m.def("_set_current_graph_name", [](const std::string& name) { graph_name() = name; }, py::arg("name"));
  m.def("_xla_optimization_barrier_", &barrier, py::arg("tensors"));
  m.def("_pending_graph_text", &device_text, py::arg("device") = "");
  m.def("_compile_reasons", &compile_reasons);
  m.def("_operators", &operators);
  m.def("_live_nodes", &live_nodes, py::call_guard<py::gil_scoped_release>());
  m.def("_live_cells", &live_cells, py::call_guard<py::gil_scoped_release>());
  m.def("_reopen_caches", &reopen_caches);
  m.def("_set_fusion", &env::set_fusion, py::arg("on"));
  m.def("_fusion", &env::fusion);
  m.def("_lazy", &env::lazy);
  m.def("_set_lazy", &set_lazy_mode, py::arg("on"), py::call_guard<py::gil_scoped_release>());
}

} // namespace torch_xla
