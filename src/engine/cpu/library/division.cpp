// Divisions of whole numbers, before ATen computes them.
#include "engine/cpu/library/division.h"

#include <ATen/ops/result_type.h>
#include <ATen/ops/where.h>

#include <limits>

#include "engine/cpu/library/args.h"

namespace torch_xla::cpu {
namespace {

int64_t least_number(c10::ScalarType type) {
  return std::numeric_limits<int64_t>::min() >> (64 - 8 * static_cast<int>(c10::elementSize(type)));
}

// Where argument 0 is the most negative number of the type that both arguments have in common; undefined if it is nowhere. `a` becomes
// that argument in the type.
at::Tensor find_least(at::Tensor& a, const at::Tensor& b) {
  const c10::ScalarType type = at::result_type(a, b);
  if (!c10::isIntegralType(type, /*includeBool=*/false) || !c10::isSignedType(type) || a.layout() != c10::kStrided) {
    return {};
  }
  a = a.to(type);
  const at::Tensor least = a.eq(least_number(type));
  return least.any().item<bool>() ? least : at::Tensor();
}

} // namespace

void wrap_quotients(torch::jit::Stack& arguments) {
  const at::Tensor b = tensor_of(arguments[1]);
  if (!c10::isIntegralType(b.scalar_type(), /*includeBool=*/false) || b.layout() != c10::kStrided) {
    return;
  }
  const at::Tensor minus_one = b.eq(-1);
  if (!minus_one.any().item<bool>()) {
    return;
  }
  at::Tensor a = tensor_of(arguments[0]);
  const at::Tensor least = find_least(a, b);
  if (least.defined()) {
    arguments[1] = at::where(minus_one.logical_and(least), 1, b.to(a.scalar_type()));
  }
}

void wrap_multiples(torch::jit::Stack& arguments) {
  at::Tensor a = tensor_of(arguments[0]);
  at::Tensor b = tensor_of(arguments[1]);
  const at::Tensor least = find_least(a, b);
  if (least.defined()) {
    b = b.to(a.scalar_type());
    arguments[0] = at::where(least, b, a);
    arguments[1] = at::where(least, a, b);
  }
}

} // namespace torch_xla::cpu
