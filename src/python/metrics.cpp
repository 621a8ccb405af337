// Metrics and counters under the original's names.
#include "core/metrics.h"

#include "core/metrics_text.h"
#include "python/bindings.h"

namespace torch_xla {
namespace {

std::vector<std::string> fallback_ops() {
  std::vector<std::string> names = metrics::counter_names();
  std::erase_if(names, [](const std::string& name) { return !metrics::is_fallback(name); });
  return names;
}

// (total samples, accumulator, ((time, value), ...)) or None.
py::object metric_data(const std::string& name) {
  metrics::Metric::Data data;
  if (!metrics::find_metric(name, &data)) {
    return py::none();
  }
  py::tuple samples(data.samples.size());
  for (size_t i = 0; i < data.samples.size(); ++i) {
    samples[i] = py::make_tuple(data.samples[i].first, data.samples[i].second);
  }
  return py::make_tuple(data.total_samples, data.accumulator, samples);
}

py::object counter_value(const std::string& name) {
  int64_t value = 0;
  if (!metrics::find_counter(name, &value)) {
    return py::none();
  }
  return py::int_(value);
}

void increment_counter(const std::string& name, int64_t by) {
  metrics::find_or_create_counter(name).add(by);
}

} // namespace

void init_metrics(py::module_& m) {
  m.def("_xla_metrics_report", &metrics::report);
  m.def("_short_xla_metrics_report", &metrics::short_report, py::arg("counters"), py::arg("metrics"));
  m.def("_xla_metric_names", &metrics::metric_names);
  m.def("_xla_metric_data", &metric_data, py::arg("name"));
  m.def("_xla_counter_names", &metrics::counter_names);
  m.def("_xla_counter_value", &counter_value, py::arg("name"));
  m.def("_xla_increment_counter", &increment_counter, py::arg("name"), py::arg("by"));
  m.def("_get_executed_fallback_ops", &fallback_ops);
  m.def("_clear_xla_counters", &metrics::clear_counters);
  m.def("_clear_xla_metrics", &metrics::clear_metrics);
}

} // namespace torch_xla
