// Cell: what the storage of a device tensor holds instead of memory; all tensors that share the storage share the cell.
#pragma once

#include <ATen/core/Tensor.h>

#include "ir/type.h"
#include "tensor/lazy_value.h"

namespace torch_xla {

// Members are guarded by the recording lock. The destructor only drops references and takes no lock.
struct Cell : FreeListed<Cell> {
  ~Cell() {
    set_value(nullptr);
  }
  // Takes over one reference.
  void set_value(LazyValue* v) {
    LazyValue* old = value;
    value = v;
    if (old) {
      old->unref();
    }
  }

  LazyValue* value = nullptr; // null: memory that nobody has written yet
  // How the value lies in the storage: its elements fill the storage densely in this order, from offset 0.
  DType dtype = DType::Undefined;
  Dims dims;
  Dims strides;
  size_t nbytes = 0;
  int device = 0;
};

// The cell of a device tensor; null for a storage that is not ours (null pointer).
inline Cell* find_cell(const at::Tensor& tensor) {
  return static_cast<Cell*>(tensor.unsafeGetTensorImpl()->unsafe_storage().data_ptr().get_context());
}
inline Cell* find_cell(const c10::Storage& storage) {
  return static_cast<Cell*>(storage.data_ptr().get_context());
}

// A cell with an address of its own in reserved memory.
c10::DataPtr make_cell(size_t nbytes, int device, Cell** cell);

inline DType to_dtype(c10::ScalarType t) {
  return static_cast<DType>(t);
}
inline c10::ScalarType to_scalar_type(DType t) {
  return static_cast<c10::ScalarType>(t);
}
inline Dims to_dims(c10::IntArrayRef v) {
  return Dims(v.data(), v.size());
}
inline c10::IntArrayRef to_ref(const Dims& v) {
  return {v.data(), v.size()};
}

} // namespace torch_xla
