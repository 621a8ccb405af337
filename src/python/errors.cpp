// Our errors as Python exceptions, for the functions of this module. (Errors in ATen ops pass through PyTorch's own translation.)
#include "trace/torch_errors.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include "python/bindings.h"

namespace torch_xla {
namespace {

PyObject* exception_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Value:
      return PyExc_ValueError;
    case ErrorKind::Type:
      return PyExc_TypeError;
    case ErrorKind::Index:
      return PyExc_IndexError;
    case ErrorKind::NotImplemented:
      return PyExc_NotImplementedError;
    case ErrorKind::OutOfMemory:
    case ErrorKind::LinAlg:
    case ErrorKind::Runtime:
      break;
  }
  return PyExc_RuntimeError;
}

// PyTorch's classes of its own, which its library does not export, by way of the C++ error that stands for each.
void set_class_of_torch(const UserError& user) {
  try {
    throw_as_torch_error(user);
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

void translate(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const UserError& user) {
    if (user.kind() == ErrorKind::OutOfMemory || user.kind() == ErrorKind::LinAlg) {
      return set_class_of_torch(user);
    }
    PyErr_SetString(exception_of(user.kind()), user.what());
  } catch (const InternalError& ours) {
    PyErr_SetString(PyExc_RuntimeError, ours.what());
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

} // namespace

void init_errors(py::module_& /*m*/) {
  py::register_local_exception_translator(&translate);
}

} // namespace torch_xla
