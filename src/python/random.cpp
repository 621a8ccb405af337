// The device's default generator.
#include <torch/csrc/Generator.h>

#include "python/bindings.h"
#include "tensor/generator.h"

namespace torch_xla {
namespace {

// A torch.Generator that shares the state of the device's default one.
py::object python_default_generator(int index) {
  return py::reinterpret_steal<py::object>(THPGenerator_Wrap(default_generator(index)));
}

} // namespace

void init_random(py::module_& m) {
  m.def("_xla_default_generator", &python_default_generator, py::arg("index") = 0);
  m.def("_xla_set_rng_seed", [](uint64_t seed, const std::string& /*device*/) { set_seed(seed); }, py::arg("seed"), py::arg("device") = "");
  m.def("_xla_get_rng_seed", [](const std::string& /*device*/) { return get_seed(); }, py::arg("device") = "");
  m.def("_xla_set_rng_state", &set_rng_state, py::arg("seed"), py::arg("offset"));
  m.def("_xla_get_rng_state", &get_rng_state);
}

} // namespace torch_xla
