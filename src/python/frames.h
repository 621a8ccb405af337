// Access to Python frames across interpreter versions, for the walk over a thread's frames: caller, code and instruction. The frames' own
// thread may call it without the GIL.
#pragma once

#include <Python.h>

#include <cstdint>

#if PY_VERSION_HEX < 0x030A0000 || PY_VERSION_HEX >= 0x030F0000
#error "torch_xla knows the frames of Python 3.10 to 3.14"
#endif

#if PY_VERSION_HEX >= 0x030B0000
#define Py_BUILD_CORE 1
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe_structs.h>
#else
#include <internal/pycore_frame.h>
#endif

#include <internal/pycore_code.h>
#else
#include <frameobject.h>
#endif

namespace torch_xla::frames {

#if PY_VERSION_HEX >= 0x030B0000
using Frame = _PyInterpreterFrame;
#else
using Frame = PyFrameObject;
#endif

// The innermost frame; null if the thread runs no Python code.
inline const Frame* current(const PyThreadState* state) {
#if PY_VERSION_HEX >= 0x030D0000
  return state->current_frame;
#elif PY_VERSION_HEX >= 0x030B0000
  return state->cframe == nullptr ? nullptr : state->cframe->current_frame;
#else
  return state->frame;
#endif
}

inline const Frame* caller(const Frame* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return frame->previous;
#else
  return frame->f_back;
#endif
}

#if PY_VERSION_HEX >= 0x030D0000
inline const _Py_CODEUNIT* instruction(const Frame* frame) {
  return frame->instr_ptr;
}
#elif PY_VERSION_HEX >= 0x030B0000
inline const _Py_CODEUNIT* instruction(const Frame* frame) {
  return frame->prev_instr;
}
#endif

// Null for a frame under construction, which has no line yet, and for a frame of C.
inline PyCodeObject* code(const Frame* frame) {
#if PY_VERSION_HEX >= 0x030E0000
  if (frame->owner >= FRAME_OWNED_BY_INTERPRETER) {
    return nullptr;
  }
#elif PY_VERSION_HEX >= 0x030C0000
  if (frame->owner == FRAME_OWNED_BY_CSTACK) {
    return nullptr;
  }
#endif
#if PY_VERSION_HEX >= 0x030E0000
  // The lowest bits are flags of reference counting.
  auto* code = reinterpret_cast<PyCodeObject*>(frame->f_executable.bits & ~std::uintptr_t{3});
#elif PY_VERSION_HEX >= 0x030D0000
  auto* code = reinterpret_cast<PyCodeObject*>(frame->f_executable);
#else
  PyCodeObject* code = frame->f_code;
#endif
#if PY_VERSION_HEX >= 0x030B0000
  bool complete = frame->owner == FRAME_OWNED_BY_GENERATOR || instruction(frame) >= _PyCode_CODE(code) + code->_co_firsttraceable;
  return complete ? code : nullptr;
#else
  return frame->f_lasti < 0 ? nullptr : code;
#endif
}

// Index of the frame's current instruction within its code.
inline int instruction_index(const Frame* frame, [[maybe_unused]] PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030B0000
  return static_cast<int>(instruction(frame) - _PyCode_CODE(code));
#else
  return frame->f_lasti;
#endif
}

inline int line(PyCodeObject* code, int instruction_index) {
  return PyCode_Addr2Line(code, instruction_index * 2);
}

// "Class.method"; before 3.11 "method".
inline PyObject* name(const PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030B0000
  return code->co_qualname;
#else
  return code->co_name;
#endif
}

} // namespace torch_xla::frames
