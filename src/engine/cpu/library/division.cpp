// Divisions of whole numbers, before ATen computes them.
#include "engine/cpu/library/division.h"

#include <ATen/ops/min.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/where.h>

#include <limits>

#include "engine/cpu/library/args.h"

namespace torch_xla::cpu {
namespace {

bool is_signed_whole(c10::ScalarType type) {
  return c10::isIntegralType(type, /*includeBool=*/false) && c10::isSignedType(type);
}

int64_t least_number(c10::ScalarType type) {
  return std::numeric_limits<int64_t>::min() >> (64 - 8 * static_cast<int>(c10::elementSize(type)));
}

// The least element: ATen finds it in a tenth of a division's time.
int64_t least_of(const at::Tensor& t) {
  return t.numel() == 0 ? 0 : t.min().item<int64_t>();
}

// Mask of the places where `a` is the most negative number of its common type with `b`; undefined if there are none. Converts `a` to that
// type.
at::Tensor find_least(at::Tensor& a, const at::Tensor& b) {
  const c10::ScalarType type = at::result_type(a, b);
  if (!is_signed_whole(type) || a.layout() != c10::kStrided) {
    return {};
  }
  a = a.to(type);
  return least_of(a) == least_number(type) ? a.eq(least_number(type)) : at::Tensor();
}

} // namespace

void wrap_quotients(torch::jit::Stack& arguments) {
  const at::Tensor b = tensor_of(arguments[1]);
  if (!is_signed_whole(b.scalar_type()) || b.layout() != c10::kStrided || least_of(b) >= 0) {
    return;
  }
  at::Tensor a = tensor_of(arguments[0]);
  const at::Tensor least = find_least(a, b);
  if (least.defined()) {
    arguments[1] = at::where(b.eq(-1).logical_and(least), 1, b.to(a.scalar_type()));
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
