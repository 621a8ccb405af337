// Which Python thread a thread is: the layer below hears that it begins to record, and that its Python part ends.
#pragma once

#include "python/bindings.h"

namespace torch_xla {

// The calling thread records from now on: its traces are left where its Python part ends. Takes the GIL.
void begin_python_thread();

void init_threads(py::module_& m);

} // namespace torch_xla
