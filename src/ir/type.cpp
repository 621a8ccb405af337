// The broadcasting rule and the text of types.
#include "ir/type.h"

#include "core/errors.h"

namespace torch_xla {

Dims broadcast_dims(const Dims& a, const Dims& b) {
  if (a == b) {
    return a;
  }
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  Dims dims = longer;
  size_t lead = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t& d = dims[lead + i];
    if (d == 1) {
      d = shorter[i];
    } else if (shorter[i] != 1 && shorter[i] != d) {
      int64_t of_a = &longer == &a ? d : shorter[i];
      int64_t of_b = &longer == &a ? shorter[i] : d;
      throw UserError(
          ErrorKind::Runtime,
          str("The size of tensor a (", of_a, ") must match the size of tensor b (", of_b, ") at non-singleton dimension ", lead + i));
    }
  }
  return dims;
}

std::string dims_text(const Dims& dims, char open, char close) {
  std::string text(1, open);
  for (size_t i = 0; i < dims.size(); ++i) {
    text += (i ? "," : "") + std::to_string(dims[i]);
  }
  return text + close;
}

std::string type_text(const Type& type) {
  return dtype_name(type.dtype) + dims_text(type.dims, '[', ']');
}

} // namespace torch_xla
