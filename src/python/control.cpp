// Loops: recorded bodies, and the nodes that run them. torch_xla/experimental has the functions for users.
#include <ATen/ExpandUtils.h>
#include <torch/csrc/utils/pybind.h>

#include "python/bindings.h"
#include "recording/capture.h"
#include "replay/record_loop.h"

namespace torch_xla {

void init_control(py::module_& m) {
  using no_gil = py::call_guard<py::gil_scoped_release>;
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
