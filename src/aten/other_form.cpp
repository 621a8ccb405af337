// Powers with any exponent, and numbers written by a mask.
#include "aten/other_form.h"

#include "aten/native_call.h"
#include "ops/registry.h"
#include "ops/rules.h"
#include "trace/cell.h"

namespace torch_xla {
namespace {

// For powers that are no product, root or quotient: the exponent is a number of the program, so other exponents reuse it.
std::optional<OtherForm> find_power(const Op& row, const BoxedCall& call) {
  const DType dtype = to_dtype(call.tensors[0].scalar_type());
  if (!promotes(row.rule) || is_reduced_float(dtype)) { // ATen refuses exponents that do not fit
    return std::nullopt;
  }
  static const Op& power = get_op("aten::pow.Tensor_Tensor");
  const auto* whole = is_float(dtype) ? std::get_if<int64_t>(&call.attrs[0]) : nullptr;
  if (whole && !is_simple_power(static_cast<double>(*whole))) {
    return OtherForm{power, call.tensors[0], {}, {}, *whole};
  }
  const auto* exponent = std::get_if<double>(&call.attrs[0]);
  return exponent && !is_simple_power(*exponent) ? std::optional(OtherForm{power, call.tensors[0], {}, {}, *exponent}) : std::nullopt;
}

// The dim of the only index; none if there are more.
std::optional<int64_t> find_only_index(const BoxedCall& call) {
  std::optional<int64_t> only;
  for (size_t i = 1; i + 1 < call.tensors.size(); ++i) {
    if (call.tensors[i].defined() && only) {
      return std::nullopt;
    }
    only = call.tensors[i].defined() ? std::optional(static_cast<int64_t>(i) - 1) : only;
  }
  return only;
}

// x[mask] = number, a call of index_put: computed as in ATen's kernel by masked_fill, with a row-major result.
std::optional<OtherForm> find_masked_write(const Op& row, Convention convention, const BoxedCall& call) {
  const bool* accumulates = call.attrs.size() < 2 ? nullptr : std::get_if<bool>(&call.attrs[1]); // after the number of indices
  if (row.written != Written::kIndexed || !accumulates || *accumulates) {
    return std::nullopt;
  }
  const at::Tensor& self = call.tensors.front();
  const at::Tensor& value = call.tensors.back();
  const std::optional<int64_t> at = find_only_index(call);
  at::Tensor mask = at ? call.tensors[static_cast<size_t>(*at) + 1] : at::Tensor();
  if (!mask.defined() || mask.scalar_type() != c10::ScalarType::Bool || mask.dim() == 0 || value.numel() != 1 || value.dim() > 1 ||
      value.scalar_type() != self.scalar_type() || (convention == Convention::kFunctional && !self.is_contiguous())) {
    return std::nullopt;
  }
  if (*at + mask.dim() > self.dim() || mask.sizes() != self.sizes().slice(static_cast<size_t>(*at), static_cast<size_t>(mask.dim()))) {
    return std::nullopt;
  }
  for (int64_t d = *at + mask.dim(); d < self.dim(); ++d) {
    mask = mask.unsqueeze(-1);
  }
  return OtherForm{get_op("aten::masked_fill.Tensor"), self, mask, value.view(at::IntArrayRef()), {}};
}

} // namespace

std::vector<PointwiseArg> OtherForm::args() const {
  return mask.defined() ? std::vector<PointwiseArg>{self, mask, value} : std::vector<PointwiseArg>{self, exponent};
}

std::optional<OtherForm> find_other_form(const Op& row, Convention convention, const BoxedCall& call) {
  if (row.kind == OpKind::kPointwise || !(promotes(row.rule) || row.written == Written::kIndexed) || call.tensors.empty() ||
      !call.tensors[0].defined() || call.tensors[0].numel() == 0 ||
      (convention == Convention::kInplace && overlaps_itself(call.tensors[0]))) {
    return std::nullopt;
  }
  std::optional<OtherForm> power = find_power(row, call);
  std::optional<OtherForm> form = power ? std::move(power) : find_masked_write(row, convention, call);
  if (!form || !is_native_call(form->row, form->args())) {
    return std::nullopt;
  }
  for (const at::Tensor& out : call.outs) {
    if (!is_writable_out(out) || !is_native_out(form->row, form->args(), out)) {
      return std::nullopt;
    }
  }
  return form;
}

} // namespace torch_xla
