// Graphs that are recorded once and run again: of torch.compile (torch_xla/_dynamo/__init__.py) and steps (torch_xla/_replay.py).
#include <torch/csrc/utils/pybind.h>

#include "python/bindings.h"
#include "replay/region.h"
#include "replay/step_graph.h"

namespace torch_xla {

void init_replay(py::module_& m) {
  using no_gil = py::call_guard<py::gil_scoped_release>;
  py::class_<Region>(m, "_Region")
      .def(py::init(&take_region), py::arg("capture"), py::arg("arguments"), py::arg("results"), no_gil())
      .def("record", &record_region, py::arg("arguments"), no_gil());
  py::class_<StepGraph>(m, "_StepGraph")
      .def(py::init<>())
      .def("begin", &StepGraph::begin, py::arg("device"), no_gil())
      .def("end", &StepGraph::end, no_gil())
      .def("replay", &StepGraph::replay, no_gil())
      .def("reset", &StepGraph::reset, no_gil())
      .def("text", &StepGraph::text, no_gil())
      .def("numbers", &StepGraph::numbers, no_gil())
      .def("storages", [](const StepGraph& graph) {
        std::vector<std::pair<uintptr_t, std::string>> addresses; // as untyped_storage()._cdata
        for (auto& [storage, line] : graph.storages()) {
          addresses.emplace_back(reinterpret_cast<uintptr_t>(storage), std::move(line));
        }
        return addresses;
      });
}

} // namespace torch_xla
