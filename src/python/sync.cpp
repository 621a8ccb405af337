// Runs pending operations and waits for them, without the GIL and with Ctrl-C handled.
#include <csignal>
#include <optional>
#include <set>

#include "engine/engine.h"
#include "program/sync.h"
#include "python/bindings.h"
#include "python/threads.h"
#include "runtime/executor.h"
#include "runtime/interrupt.h"

namespace torch_xla {
namespace {

unsigned long main_thread = 0;

// Only Python's main thread handles signals; other threads need not take the GIL for it.
void run_handlers() {
  if (PyThread_get_thread_ident() != main_thread || !Py_IsInitialized()) {
    return;
  }
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    throw py::error_already_set();
  }
}

bool is_interrupted() {
  if (PyThread_get_thread_ident() != main_thread || !Py_IsInitialized()) {
    return false;
  }
  const py::gil_scoped_acquire gil;
  if (!PyOS_InterruptOccurred()) {
    return false;
  }
  PyErr_SetInterrupt(); // to be handled later
  return true;
}

py::handle find_handler, default_handler; // signal.getsignal and signal.default_int_handler

void raise_default() {
  const py::gil_scoped_acquire gil;
  const int collects = PyGC_Disable(); // finalizers are Python code
  std::optional<py::error_already_set> error;
  if (find_handler(SIGINT).is(default_handler) && PyOS_InterruptOccurred()) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    error.emplace();
  }
  if (collects) {
    PyGC_Enable();
  }
  if (error) {
    throw *error;
  }
}

void* release_gil() {
  return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
}

void take_gil(void* released) {
  PyEval_RestoreThread(static_cast<PyThreadState*>(released));
}

void run_pending(int device, bool wait, SyncCause cause) {
  const py::gil_scoped_release no_gil;
  sync(device, wait, cause);
}

// The original also takes the devices to replicate over.
void step_marker(const std::string& device, const std::vector<std::string>& /*devices*/, bool wait, SyncCause cause) {
  int index = device_index(device);
  const py::gil_scoped_release no_gil;
  mark_step(index, wait, cause);
}

// The original runs only the operations that these tensors need; here a sync runs all pending operations of their devices, so the
// original's further arguments have no effect.
void sync_tensors(const py::list& tensors, const std::vector<std::string>& /*devices*/, bool wait, bool /*sync_xla_data*/) {
  std::set<int> indices;
  for (py::handle tensor : tensors) {
    indices.insert(device_index(py::str(tensor.attr("device"))));
  }
  for (int index : indices) {
    run_pending(index, wait, SyncCause::kUser);
  }
}

// Waits for all devices if none is named.
void wait_ops(const std::vector<std::string>& devices) {
  std::vector<int> indices;
  for (const std::string& device : devices) {
    indices.push_back(device_index(device));
  }
  for (int index = 0; devices.empty() && index < num_devices(); ++index) {
    indices.push_back(index);
  }
  const py::gil_scoped_release no_gil;
  for (int index : indices) {
    wait_device_ops(index);
  }
}

// Called before the interpreter ends: the wait needs it for Ctrl-C. A process that ends by an exception needs none of the results of the
// runs under way.
void finish(bool cancel) {
  const py::gil_scoped_release no_gil;
  Executor::finish(cancel ? std::chrono::seconds(0) : std::chrono::seconds(60));
}

} // namespace

void init_sync(py::module_& m) {
  main_thread = py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
  const py::module_ signals = py::module_::import("_signal");
  find_handler = signals.attr("getsignal").cast<py::object>().release();
  default_handler = signals.attr("default_int_handler").cast<py::object>().release();
  static const interrupt::Hooks hooks{&run_handlers, &is_interrupted, &raise_default, &begin_python_thread, &release_gil, &take_gil};
  interrupt::set_hooks(&hooks);
  py::enum_<SyncCause>(m, "SyncCause")
      .value("USER", SyncCause::kUser)
      .value("OPTIMIZER", SyncCause::kOptimizer)
      .value("LOADER", SyncCause::kLoader)
      .value("STEP_TRACE", SyncCause::kStepTrace)
      .value("COMPILE", SyncCause::kCompile)
      .value("BEFORE_COMPILE", SyncCause::kBeforeCompile)
      .value("EAGER", SyncCause::kEager);
  m.def("_xla_sync", &run_pending, py::arg("device"), py::arg("wait") = false, py::arg("cause") = SyncCause::kUser);
  m.def("_xla_sync_collectives", &sync_collectives, py::arg("device"), py::call_guard<py::gil_scoped_release>());
  m.def("_xla_pending_collectives", &pending_collectives, py::arg("device"), py::call_guard<py::gil_scoped_release>());
  m.def(
      "_xla_step_marker",
      &step_marker,
      py::arg("device") = "",
      py::arg("devices") = std::vector<std::string>(),
      py::arg("wait") = true,
      py::arg("cause") = SyncCause::kUser);
  m.def("_xla_sync_multi", &sync_tensors, py::arg("tensors"), py::arg("devices"), py::arg("wait") = true, py::arg("sync_xla_data") = true);
  m.def("_xla_finish", &finish, py::arg("cancel"));
  m.def("_xla_wait_device_ops", &wait_ops, py::arg("devices") = std::vector<std::string>());
}

} // namespace torch_xla
