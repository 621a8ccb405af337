// ATen's composites that check a tensor's values on the CPU only, to spare other devices a wait: here the run checks them.
#include <ATen/ops/_functional_assert_async.h>
#include <ATen/ops/nanquantile_native.h>
#include <ATen/ops/quantile_native.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "kernels/register.h"

namespace torch_xla {
namespace {

using at::Tensor;

// `t`, if the run finds `condition` true throughout; else the run fails with the message.
Tensor checked(const Tensor& t, const Tensor& condition, c10::string_view message) {
  const Tensor zero = at::zeros({}, t.options().requires_grad(false));
  return t.add(at::_functional_assert_async(condition.all(), message, zero));
}

// Their consumers refuse other shares.
Tensor checked_shares(const Tensor& q) {
  if (!q.is_privateuseone() || !q.is_floating_point()) {
    return q;
  }
  return checked(q, q.ge(0).logical_and(q.le(1)), "quantile() q values must be in the range [0, 1]");
}

using Dim = std::optional<int64_t>;

template <auto kQuantile>
Tensor quantile(const Tensor& self, const Tensor& q, Dim dim, bool keepdim, c10::string_view interpolation) {
  return kQuantile(self, checked_shares(q), dim, keepdim, interpolation);
}

template <auto kQuantile>
Tensor& quantile_out(const Tensor& self, const Tensor& q, Dim dim, bool keepdim, c10::string_view interpolation, Tensor& out) {
  return kQuantile(self, checked_shares(q), dim, keepdim, interpolation, out);
}

using Quantile = Tensor (*)(const Tensor&, const Tensor&, Dim, bool, c10::string_view);
using QuantileOut = Tensor& (*)(const Tensor&, const Tensor&, Dim, bool, c10::string_view, Tensor&);

} // namespace

void register_checked_values(torch::Library& m) {
  m.impl("quantile", TORCH_FN((quantile<static_cast<Quantile>(at::native::quantile)>)));
  m.impl("quantile.out", TORCH_FN((quantile_out<static_cast<QuantileOut>(at::native::quantile_out)>)));
  m.impl("nanquantile", TORCH_FN((quantile<static_cast<Quantile>(at::native::nanquantile)>)));
  m.impl("nanquantile.out", TORCH_FN((quantile_out<static_cast<QuantileOut>(at::native::nanquantile_out)>)));
}

} // namespace torch_xla
