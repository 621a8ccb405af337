// Cell: the content of a device tensor's storage, in place of memory; tensors that share the storage share the cell.
#pragma once

#include <ATen/core/Tensor.h>

#include "ir/sharding.h"
#include "ir/type.h"
#include "trace/lazy_value.h"

namespace torch_xla {

// The sharding that a user has set for a content of these dims and strides.
struct ShardingMark {
  Sharding sharding;
  Dims dims;
  Dims strides;
};

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

  LazyValue* value = nullptr; // null: uninitialized memory
  std::shared_ptr<const ShardingMark> mark; // values that are written later get its sharding; null: none
  PreviousRef previous; // the content before `value`, restored if the run of `value` fails
  // The layout of the value: its elements fill the storage densely in this order, from offset 0.
  DType dtype = DType::Undefined;
  Dims dims;
  Dims strides;
  size_t nbytes = 0;
  int device = 0; // never changes
  uint32_t capture = 0; // number of the capture that made it; 0: none
};

// If the run of the cell's value has failed and a user has got the error: restores the last good content, if there is one. Before that, the
// next user of the tensor gets the error.
void take_back_when_told(Cell& cell);

// Call it before the cell gets a value of the pending trace or of a run: saves the cell's content in cell.previous and returns it; null if
// there is no content or it is saved already.
PreviousRef keep_previous(Cell& cell);

// Deletes the cell of make_cell(); its address tells cells from the contexts of other owners.
void delete_cell(void* context);

// The cell of a device tensor. Null without a storage (sparse tensors, tensors that transforms wrap) and for a foreign storage: a null
// pointer, a slice of another storage, foreign memory.
inline Cell* find_cell(const c10::Storage& storage) {
  return storage ? storage.data_ptr().cast_context<Cell>(&delete_cell) : nullptr;
}
inline Cell* find_cell(const at::Tensor& tensor) {
  return find_cell(tensor.unsafeGetTensorImpl()->unsafe_storage());
}

// A cell with a unique address that holds no memory.
c10::DataPtr make_cell(size_t nbytes, int device, Cell** cell);
// Storage for nbytes on the device: a unique address that nothing may read, and a cell as context. Uses no memory before it has a value.
c10::DataPtr allocate_cell(size_t nbytes, int device);
// Gives the cell another address, with room for nbytes.
void move_cell(c10::DataPtr& data, size_t nbytes);

// Cells of all devices, for leak checks.
int64_t live_cells();

inline constexpr const char* kNoCell =
    "the tensor has no storage of the XLA device's own: it is sparse, stands for another tensor in a transform or a mode, is a slice of "
    "another storage or was made from a pointer. Such memory cannot be read; take a view of a tensor instead, or exchange tensors by "
    "torch_xla.utils.dlpack";

// Whether the tensor shows each byte of its storage of nbytes exactly once.
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
// The same as ==, which calls memcmp even for the few numbers of dims.
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
