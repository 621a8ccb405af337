// Shardings of tensors over the devices of a plugin; torch_xla/distributed/spmd has the functions for users.
#include <torch/csrc/utils/pybind.h>

#include "program/sync.h"
#include "python/bindings.h"
#include "recording/recording.h"
#include "recording/sharding.h"

namespace torch_xla {
namespace {

using Numbers = std::vector<int64_t>;
using no_gil = py::call_guard<py::gil_scoped_release>;

void run_over_all_devices() {
  if (!engine().shares_memory() && engine().num_partitions() != num_devices()) {
    engine().run_over_all_devices();
    forget_programs(); // of one device
  }
}

void mark(const at::Tensor& t, const Numbers& tiles, const Numbers& devices) {
  make_sharding(tiles, devices); // checks it
  Recording(device_number(t)).mark(t, {tiles, devices});
}

// Attributes in the order of ir/shards.h.
at::Tensor exchange(
    const at::Tensor& t,
    const std::string& name,
    const std::string& reduction,
    const Numbers& groups,
    int64_t num_groups,
    const Numbers& dims) {
  Attrs attrs{reduction, Dims(groups), num_groups};
  for (int64_t dim : dims) {
    attrs.push_back(dim);
  }
  return exchange_shards(t, "xla::" + name, std::move(attrs));
}

// Tiles and devices, or nothing.
std::optional<std::pair<Numbers, Numbers>> find(const at::Tensor& t) {
  auto numbers = [](const Dims& dims) { return Numbers(dims.begin(), dims.end()); };
  std::optional<Sharding> sharding = find_sharding(t);
  return sharding ? std::make_optional(std::pair(numbers(sharding->tiles), numbers(sharding->devices))) : std::nullopt;
}

} // namespace

void init_sharding(py::module_& m) {
  m.def("_xla_shares_memory", [] { return engine().shares_memory(); });
  m.def("_num_partitions", [] { return engine().num_partitions(); });
  m.def("_run_over_all_devices", &run_over_all_devices, no_gil());
  m.def("_mark_sharding", &mark, py::arg("tensor"), py::arg("tiles"), py::arg("devices"), no_gil());
  m.def("_find_sharding", &find, py::arg("tensor"), no_gil());
  m.def(
      "_take_shard",
      [](const at::Tensor& t, const Numbers& tiles, const Numbers& devices) { return take_shard(t, {tiles, devices}); },
      no_gil());
  m.def(
      "_join_shards",
      [](const at::Tensor& t, const Numbers& tiles, const Numbers& devices) { return join_shards(t, {tiles, devices}); },
      no_gil());
  m.def("_exchange_shards", &exchange, no_gil());
  m.def("_is_shard", &is_shard, no_gil());
  m.def("_clear_sharding_mark", &clear_mark, py::arg("tensor"), no_gil());
}

} // namespace torch_xla
