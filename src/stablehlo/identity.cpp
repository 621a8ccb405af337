// Rows that pass on an operand's bits: as another type, or unchanged for checks, barriers and shardings.
#include "stablehlo/call.h"

namespace torch_xla::stablehlo {
namespace {

// ---- view_copy.dtype ----

Hlo bit_cast(Hlo x, const Type& type) {
  return x.text().op("bitcast_convert", {x}, {}, type);
}

// Bool is one bit there: it goes by way of U8.
void write_reinterpret(Call& c) {
  Type to = c.result_type(0);
  Hlo x = c[0].dtype() == DType::Bool ? convert(c[0], DType::U8) : c[0];
  bool to_bool = to.dtype == DType::Bool;
  to.dtype = to_bool ? DType::U8 : to.dtype;
  auto from_size = static_cast<int64_t>(item_size(x.dtype()));
  auto to_size = static_cast<int64_t>(item_size(to.dtype));
  Dims dims = x.dims();
  if (from_size < to_size) { // several elements make one
    dims.back() = to.dims.back();
    dims.push_back(to_size / from_size);
    x = bit_cast(reshape(x, dims), to);
  } else {
    if (from_size > to_size) {
      dims.push_back(from_size / to_size);
    }
    x = x.dtype() == to.dtype ? x : bit_cast(x, {to.dtype, dims});
  }
  c.set(0, x);
}

// No program of a plugin can raise.
void write_assert(Call& c) {
  c.set(0, c[1]);
}

void write_barrier(Call& c) {
  Hlos operands;
  std::vector<Type> types;
  for (size_t i = 0; i < c.num_results(); ++i) {
    operands.push_back(c[i]);
    types.push_back(c.result_type(i));
  }
  Hlos results = c.text().op("optimization_barrier", operands, {}, types);
  for (size_t i = 0; i < results.size(); ++i) {
    c.set(i, results[i]);
  }
}

void write_constraint(Call& c) {
  c.set(0, c.text().constrain(c[0], {c.get_dims(0), c.get_dims(1)}));
}

constexpr Writer kWriters[] = {
    {"aten::view_copy.dtype", write_reinterpret},
    {"aten::_functional_assert_async.msg", write_assert},
    {"xla::optimization_barrier", write_barrier},
    {"xla::sharding_constraint", write_constraint},
};

} // namespace

std::span<const Writer> identity_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
