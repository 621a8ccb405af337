// Which Python thread a thread is: the layer below hears that it begins to record, and that its Python part ends.
#include "python/threads.h"

#include "trace/recorder.h"

namespace torch_xla {
namespace {

constexpr const char* kKey = "torch_xla";

// What Python has for a thread is to go: called with its number. Never destroyed.
py::object& end_of_thread() {
  static auto* function = new py::object;
  return *function;
}

// join() waits until Python has dropped the thread's dictionary, not until the system has ended the thread.
void end_thread(PyObject* capsule) {
  const bool is_own = PyCapsule_GetContext(capsule) == reinterpret_cast<void*>(PyThread_get_thread_ident());
  if (!is_own || !Py_IsInitialized()) {
    return; // another thread clears it, in a forked child, or the interpreter has ended
  }
  const py::error_scope kept;
  const uint64_t number = leave_own_recorder();
  if (number != 0 && end_of_thread()) {
    try {
      end_of_thread()(number);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("torch_xla");
    }
  }
}

} // namespace

void begin_python_thread() {
  if (!Py_IsInitialized() || !PyGILState_GetThisThreadState()) {
    return;
  }
  const py::gil_scoped_acquire gil;
  PyObject* dictionary = PyThreadState_GetDict();
  if (!dictionary || PyDict_GetItemString(dictionary, kKey)) {
    return;
  }
  const auto capsule = py::reinterpret_steal<py::object>(PyCapsule_New(&end_of_thread(), nullptr, &end_thread));
  if (!capsule || PyCapsule_SetContext(capsule.ptr(), reinterpret_cast<void*>(PyThread_get_thread_ident())) != 0 ||
      PyDict_SetItemString(dictionary, kKey, capsule.ptr()) != 0) {
    throw py::error_already_set();
  }
}

void init_threads(py::module_& m) {
  m.def("_own_recorder_number", [] {
    begin_python_thread(); // the caller keeps something by the number
    return Recorder::current().number;
  });
  m.def("_set_end_of_thread", [](py::object function) { end_of_thread() = std::move(function); }, py::arg("function"));
}

} // namespace torch_xla
