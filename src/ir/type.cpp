// The broadcasting rule.
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
      throw UserError(ErrorKind::Runtime, str("The size of tensor a (", of_a, ") must match the size of tensor b (", of_b,
                                              ") at non-singleton dimension ", lead + i));
    }
  }
  return dims;
}

} // namespace torch_xla
