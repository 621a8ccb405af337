// Loops: recorded bodies, and the nodes that run them; composites and custom calls. torch_xla/experimental has the functions for users.
#include <ATen/ExpandUtils.h>
#include <torch/csrc/utils/pybind.h>

#include "kernels/composite.h"
#include "python/bindings.h"
#include "recording/capture.h"
#include "replay/record_loop.h"

namespace torch_xla {
namespace {

using no_gil = py::call_guard<py::gil_scoped_release>;

std::vector<at::Tensor> call(
    const std::vector<at::Tensor>& inputs,
    const std::string& target,
    const std::vector<std::vector<int64_t>>& output_shapes,
    const std::vector<at::ScalarType>& output_dtypes,
    bool has_side_effect,
    const std::string& backend_config,
    int64_t api_version,
    const std::map<std::string, std::string>& frontend_attributes) {
  return custom_call(inputs, {target, output_shapes, output_dtypes, has_side_effect, backend_config, api_version, frontend_attributes});
}

at::Tensor mark(
    const at::Tensor& x, const std::string& name, int64_t pos, const std::string& id, bool is_input, const std::string& attributes) {
  return mark_tensor(x, {name, pos, id, is_input, attributes});
}

void init_composites(py::module_& m) {
  m.def(
      "_xla_custom_call",
      &call,
      py::arg("inputs"),
      py::arg("target"),
      py::arg("output_shapes"),
      py::arg("output_dtypes"),
      py::arg("has_side_effect") = false,
      py::arg("backend_config") = "",
      py::arg("api_version") = 0,
      py::arg("frontend_attributes") = std::map<std::string, std::string>(),
      no_gil());
  m.def(
      "_mark_tensor",
      &mark,
      py::arg("x"),
      py::arg("name"),
      py::arg("pos"),
      py::arg("id"),
      py::arg("is_input"),
      py::arg("attributes"),
      no_gil());
}

} // namespace

void init_control(py::module_& m) {
  init_composites(m);
  py::class_<Body>(m, "_Body").def_readonly("shared", &Body::shared);
  py::class_<Capture>(m, "_Capture")
      .def(py::init<int>(), py::arg("device"), no_gil())
      .def(
          "add_argument",
          [](Capture& capture, const at::Tensor& like, bool sliced) {
            return capture.add_argument(like.scalar_type(), like.sizes().slice(sliced));
          },
          py::arg("like"),
          py::arg("sliced") = false,
          no_gil())
      .def(
          "add_argument_like",
          [](Capture& capture, const at::Tensor& like) {
            bool row_major = like.is_contiguous();
            return capture.add_argument(
                like.scalar_type(), like.sizes(), row_major ? Dims() : to_dims(at::infer_dense_strides(like.sizes(), like.strides())));
          },
          py::arg("like"),
          no_gil())
      .def("mark_backward", &Capture::mark_backward, no_gil())
      .def("find_residuals", &Capture::find_residuals, py::arg("results"), py::arg("given"), no_gil())
      .def("take", &Capture::take, py::arg("arguments"), py::arg("results"), no_gil())
      .def("end", &Capture::end, no_gil());
  m.def(
      "_record_loop",
      [](int device,
         const Body& body,
         std::vector<at::Tensor> carried,
         std::vector<at::Tensor> sliced,
         std::optional<int64_t> trips,
         bool reverse) { return record_loop(device, body, {std::move(carried), std::move(sliced), trips, reverse}); },
      py::arg("device"),
      py::arg("body"),
      py::arg("carried"),
      py::arg("sliced"),
      py::arg("trips"),
      py::arg("reverse") = false,
      no_gil());
  m.def("_with_new_draws", &with_new_draws, py::arg("device"), py::arg("bodies"), no_gil());
}

} // namespace torch_xla
