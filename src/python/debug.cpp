// Functions for tests and torch_xla's debug modules: the pending trace, leak counters, switches. The trace is read without the GIL, as
// another thread may take long to compile it.
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "aten/missing_operators.h"
#include "aten/rows.h"
#include "core/dtype.h"
#include "core/env.h"
#include "core/torch_release.h"
#include "ir/listing.h"
#include "kernels/barrier.h"
#include "program/compile_reason.h"
#include "program/donation.h"
#include "program/known_numbers.h"
#include "program/pending_graph.h"
#include "program/sync.h"
#include "python/bindings.h"
#include "recording/copy.h"
#include "runtime/losses.h"
#include "trace/cell.h"
#include "trace/recorder.h"
#include "trace/source_line.h"

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

at::Tensor to_tensor(const py::object& object) {
  return to_tensors({object})[0];
}

// The tensors' device; without tensors the current one.
int device_of(const std::vector<at::Tensor>& tensors) {
  bool here = tensors.empty() || !tensors[0].is_privateuseone();
  return here ? device_index("") : tensors[0].get_device();
}

// The pending graph of the tensors; without tensors the current device's whole graph.
template <GraphFormat format>
std::string tensors_text(const std::vector<py::object>& objects) {
  std::vector<at::Tensor> tensors = to_tensors(objects);
  int device = device_of(tensors);
  const py::gil_scoped_release no_gil;
  return pending_text(device, tensors, format);
}

py::bytes graph_hash(const std::vector<py::object>& objects) {
  std::vector<at::Tensor> tensors = to_tensors(objects);
  int device = device_of(tensors);
  Hash128 hash;
  {
    const py::gil_scoped_release no_gil;
    hash = pending_hash(device, tensors);
  }
  return {reinterpret_cast<const char*>(&hash), sizeof(hash)};
}

template <GraphFormat format>
std::string graph_of_body(int device, const Body& body) {
  return body_text(device, body, format);
}

std::string operation_name(const py::object& object) {
  const at::Tensor tensor = to_tensor(object);
  const py::gil_scoped_release no_gil;
  return pending_operation(tensor);
}

std::string tensor_info(const py::object& object) {
  const at::Tensor tensor = to_tensor(object);
  const py::gil_scoped_release no_gil;
  return tensor_text(tensor);
}

uintptr_t address_of(const py::object& object) {
  const at::Tensor tensor = to_tensor(object);
  const py::gil_scoped_release no_gil;
  return storage_address(tensor);
}

// See read_on_cpu(). None for a tensor without memory of the device's.
py::object shown_on_cpu(const py::object& object) {
  const at::Tensor tensor = to_tensor(object);
  if (!find_cell(tensor)) {
    return py::none();
  }
  at::Tensor shown;
  {
    const py::gil_scoped_release no_gil;
    shown = read_on_cpu(tensor, "copy");
  }
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(shown));
}

bool set_donation(const py::object& tensor, bool on) {
  return set_buffer_donation(to_tensor(tensor), on);
}

// The type of the elements in memory.
std::string stored_type_name(const py::object& object) {
  return xla_type_name(stored_type(to_dtype(to_tensor(object).scalar_type()), env::float_storage()));
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

// The operators of our lists that this PyTorch lacks: the last release with each and its replacement, or None if every release we know has
// it.
py::dict missing() {
  py::dict dict;
  for (const std::string& name : missing_operators()) {
    auto known = std::find_if(
        std::begin(kOperatorsOfSomeReleases), std::end(kOperatorsOfSomeReleases), [&name](const auto& op) { return op.name == name; });
    dict[py::str(name)] = known == std::end(kOperatorsOfSomeReleases) ? py::object(py::none()) : py::make_tuple(known->last, known->now);
  }
  return dict;
}

} // namespace

void init_debug(py::module_& m) {
  m.def("_get_xla_tensors_text", &tensors_text<GraphFormat::kText>, py::arg("tensors"));
  m.def("_get_xla_tensors_dot", &tensors_text<GraphFormat::kDot>, py::arg("tensors"));
  m.def("_get_xla_tensors_hlo", &tensors_text<GraphFormat::kHlo>, py::arg("tensors"));
  m.def("_get_stablehlo", &tensors_text<GraphFormat::kStableHlo>, py::arg("tensors"));
  m.def("_get_graph_hash", &graph_hash, py::arg("tensors"));
  m.def("_body_stablehlo", &graph_of_body<GraphFormat::kStableHlo>, py::arg("device"), py::arg("body"));
  m.def("_body_hlo", &graph_of_body<GraphFormat::kHlo>, py::arg("device"), py::arg("body"));
  m.def("_pending_operation", &operation_name, py::arg("tensor"));
  m.def("_get_xla_tensor_debug_info", &tensor_info, py::arg("tensor"));
  m.def("_get_xla_tensor_shape_type", &stored_type_name, py::arg("tensor"));
  m.def("_get_current_graph_name", [] { return graph_name(); });
  m.def("_set_current_graph_name", [](const std::string& name) { graph_name() = name; }, py::arg("name"));
  m.def("_set_records_one_program", [](bool on) { return Recorder::current().records_one_program.exchange(on); }, py::arg("on"));
  m.def("_expect_number_changes", &Trace::expect_changes, py::arg("on"));
  m.def("_keep_constant_numbers", [](bool on) { KnownNumbers::get().keep_constants(on); }, py::arg("on"));
  m.def("_count_own_programs", [] { return Recorder::current().counts(); });
  m.def("_xla_optimization_barrier_", &barrier, py::arg("tensors"));
  m.def("_unsafe_buffer_pointer", &address_of, py::arg("tensor"));
  m.def("_shown_on_cpu", &shown_on_cpu, py::arg("tensor"));
  m.def("_set_buffer_donation", &set_donation, py::arg("tensor"), py::arg("should_donate"));
  m.def("_get_buffer_donation", [](const py::object& tensor) { return buffer_donation(to_tensor(tensor)); }, py::arg("tensor"));
  m.def("_is_placecholder", [](const py::object& tensor) { return has_lost_value(to_tensor(tensor)); }, py::arg("tensor"));
  m.def("_has_lost_values", &has_lost_values);
  m.def("_is_lost_for_good", [](const py::object& tensor) { return is_lost_for_good(to_tensor(tensor)); }, py::arg("tensor"));
  m.def("_xla_set_enable_alias_with_buffer_donor_config", &set_donation_within_steps, py::arg("on"));
  m.def("_xla_get_enable_alias_with_buffer_donor_config", &donation_within_steps);
  m.def("_pending_graph_text", &device_text, py::arg("device") = "");
  m.def("_compile_reasons", &compile_reasons);
  m.def("_operators", &operators);
  m.def("_missing_operators", &missing);
  m.def("_live_nodes", &live_nodes, py::call_guard<py::gil_scoped_release>());
  m.def("_live_cells", &live_cells, py::call_guard<py::gil_scoped_release>());
  m.def("_reopen_caches", &reopen_caches);
  m.def("_clear_computation_cache", &forget_programs, py::call_guard<py::gil_scoped_release>());
  m.def("_set_fusion", &env::set_fusion, py::arg("on"));
  m.def("_fusion", &env::fusion);
  m.def("_lazy", [] { return Recorder::current().is_lazy(); });
  m.def("_set_own_lazy", [](std::optional<bool> on) { return Recorder::current().set_lazy(on); }, py::arg("on"));
  m.def("_set_lazy", &set_lazy_mode, py::arg("on"), py::call_guard<py::gil_scoped_release>());
}

} // namespace torch_xla
