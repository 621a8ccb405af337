// The devices' default generators.
#include <torch/csrc/Generator.h>

#include "engine/engine.h"
#include "python/bindings.h"
#include "recording/generator.h"

namespace torch_xla {
namespace {

// A torch.Generator that shares the state of the one that the calling thread draws from.
py::object python_default_generator(int index) {
  check_device(index);
  return py::reinterpret_steal<py::object>(THPGenerator_Wrap(used_generator(index)));
}

// None: the default one. Returns the one before.
py::object set_python_generator(int index, const py::object& generator) {
  at::Generator own = generator.is_none() ? at::Generator() : reinterpret_cast<THPGenerator*>(generator.ptr())->cdata;
  own = set_own_generator(index, std::move(own));
  return own.defined() ? py::reinterpret_steal<py::object>(THPGenerator_Wrap(own)) : py::none();
}

void set_state(uint64_t seed, uint64_t offset, const std::string& device) {
  set_rng_state(device_index(device), seed, offset);
}

void set_seed(uint64_t seed, const std::string& device) {
  set_state(seed, 0, device);
}

std::pair<uint64_t, uint64_t> get_state(const std::string& device) {
  return get_rng_state(device_index(device));
}

} // namespace

void init_random(py::module_& m) {
  m.def("_xla_default_generator", &python_default_generator, py::arg("index"));
  m.def("_set_own_generator", &set_python_generator, py::arg("index"), py::arg("generator"));
  m.def("_xla_set_seed_of_all", &set_seed_of_all, py::arg("seed"));
  m.def("_xla_set_rng_seed", &set_seed, py::arg("seed"), py::arg("device") = "");
  m.def("_xla_get_rng_seed", [](const std::string& device) { return get_state(device).first; }, py::arg("device") = "");
  m.def("_xla_set_rng_state", &set_state, py::arg("seed"), py::arg("offset"), py::arg("device") = "");
  m.def("_xla_get_rng_state", &get_state, py::arg("device") = "");
}

} // namespace torch_xla
