// Cell: what the storage of a device tensor holds instead of memory; all tensors that share the storage share the cell.
#pragma once

#include <ATen/core/Tensor.h>

#include "ir/type.h"
#include "trace/lazy_value.h"

namespace torch_xla {

// Members are guarded by the recording lock of `device`. The destructor only drops references and takes no lock.
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
  PreviousRef previous; // what `value` replaced, to be taken back if its run fails
  // How the value lies in the storage: its elements fill the storage densely in this order, from offset 0.
  DType dtype = DType::Undefined;
  Dims dims;
  Dims strides;
  size_t nbytes = 0;
  int device = 0; // never changes
  uint32_t capture = 0; // the number of the one in which it was made; 0: none
};

// If the run of the cell's value has failed and the error has been told: the cell holds again what it held before, where that is left. Who
// uses the tensor before that is to be told.
void take_back_when_told(Cell& cell);

// To be called before the cell gets a value of the pending trace or of a run: what it holds, in cell.previous and returned; null where
// that is nothing, or kept already.
PreviousRef keep_previous(Cell& cell);

// Deletes what make_cell made; its address tells cells from the contexts of other owners.
void delete_cell(void* context);

// The cell of a device tensor; null where there is no storage, as of sparse tensors and those that transforms wrap, and for one that is not
// ours: a null pointer, a slice of another storage, foreign memory.
inline Cell* find_cell(const c10::Storage& storage) {
  return storage ? storage.data_ptr().cast_context<Cell>(&delete_cell) : nullptr;
}
inline Cell* find_cell(const at::Tensor& tensor) {
  return find_cell(tensor.unsafeGetTensorImpl()->unsafe_storage());
}

// A cell with an address of its own, where no memory can be.
c10::DataPtr make_cell(size_t nbytes, int device, Cell** cell);
// Storage for nbytes on the device: a unique address that nothing may read, and a cell as context. No memory is used until a value is
// there.
c10::DataPtr allocate_cell(size_t nbytes, int device);
// Gives the cell another address, with room for nbytes.
void move_cell(c10::DataPtr& data, size_t nbytes);

// Cells of all devices, for leak checks.
int64_t live_cells();

inline constexpr const char* kNoCell =
    "the tensor has no storage of the XLA device's own: it is sparse, stands for another tensor in a transform or a mode, is a slice of "
    "another storage or was made from a pointer. Such memory cannot be read; take a view of a tensor instead, or exchange tensors by "
    "torch_xla.utils.dlpack";

// The tensor shows each byte of its storage of so many once.
inline bool fills_storage(const at::Tensor& t, size_t nbytes) {
  return t.storage_offset() == 0 && static_cast<size_t>(t.numel()) * t.element_size() == nbytes && t.is_non_overlapping_and_dense();
}

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
// As ==, which calls memcmp for the few numbers that dims are.
inline bool same_dims(c10::IntArrayRef a, c10::IntArrayRef b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) {
      return false;
    }
  }
  return true;
}

} // namespace torch_xla
