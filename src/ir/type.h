// The type of a value: element type and extents.
#pragma once

#include <string>

#include "core/dtype.h"
#include "core/inline_vec.h"

namespace torch_xla {

struct Type {
  DType dtype = DType::F32;
  Dims dims;

  int64_t numel() const {
    return num_elements(dims);
  }
  int64_t nbytes() const {
    return numel() * static_cast<int64_t>(item_size(dtype));
  }
  bool operator==(const Type& o) const = default;
};

// NumPy's broadcasting of two lists of extents. Throws UserError in ATen's words if they do not match.
Dims broadcast_dims(const Dims& a, const Dims& b);
std::string dims_text(const Dims& dims, char open, char close); // "[2,3]"
std::string type_text(const Type& type); // "f32[2,3]"

} // namespace torch_xla
