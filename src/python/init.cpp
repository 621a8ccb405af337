// The Python module _XLAC: the device for `import torch_xla`. Nothing but the list of its parts.
#include "cpp/load.h"
#include "python/bindings.h"
#include "python/revision.h"
#include "python/threads.h"

PYBIND11_MODULE(_XLAC, m) {
  m.doc() = "Bindings of libtorch_xla; use the modules of torch_xla instead.";
  torch_xla::register_all();
  torch_xla::init_errors(m);
  torch_xla::init_environment(m);
  torch_xla::init_metrics(m);
  torch_xla::init_sync(m);
  torch_xla::init_device(m);
  torch_xla::init_plugins(m);
  torch_xla::init_random(m);
  torch_xla::init_control(m);
  torch_xla::init_sharding(m);
  torch_xla::init_replay(m);
  torch_xla::init_debug(m);
  torch_xla::init_observer(m);
  torch_xla::init_source_lines(m);
  torch_xla::init_threads(m);
  m.attr("_revision") = torch_xla::kRevision;
}
