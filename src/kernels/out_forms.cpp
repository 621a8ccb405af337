// out= forms of operations with a native functional form and no row that derives them: they copy its result.
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <algorithm>

#include "aten/fallback.h"
#include "aten/missing_operators.h"
#include "aten/native_call.h"
#include "kernels/register.h"
#include "trace/device_number.h"

namespace torch_xla {
namespace {

// The boxed kernel of an out= form.
class OutForm final : public c10::OperatorKernel {
 public:
  OutForm(const char* functional, bool casts) : functional_(get_operator(functional)), casts_(casts) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::IValue self = torch::jit::peek(*stack, 0, op.schema().arguments().size());
    for (const c10::IValue& out : torch::jit::last(*stack, op.schema().returns().size())) {
      const at::Tensor& t = out.toTensor();
      if (!is_xla_tensor(t) || overlaps_itself(t) || !takes(self, t.scalar_type())) {
        run_fallback(op, stack, "the out tensor cannot be written natively");
        return;
      }
    }
    std::vector<c10::IValue> outs = torch::jit::pop(*stack, op.schema().returns().size());
    functional_.callBoxed(stack);
    std::vector<c10::IValue> results = torch::jit::pop(*stack, outs.size());
    for (size_t i = 0; i < outs.size(); ++i) {
      at::Tensor result = results[i].toTensor();
      at::Tensor out = outs[i].toTensor();
      TORCH_CHECK(
          c10::canCast(result.scalar_type(), out.scalar_type()),
          "result type ",
          result.scalar_type(),
          " can't be cast to the desired output type ",
          out.scalar_type());
      at::native::resize_output(out, result.sizes());
      out.copy_(result);
    }
    stack->insert(stack->end(), outs.begin(), outs.end());
  }

 private:
  // Whether ATen converts results with the type of a tensor, or the types of a list, to `type`.
  bool takes(const c10::IValue& self, c10::ScalarType type) const {
    auto fits = [&](const at::Tensor& t) { return casts_ ? c10::canCast(t.scalar_type(), type) : t.scalar_type() == type; };
    if (self.isTensor()) {
      return fits(self.toTensor());
    }
    std::vector<at::Tensor> list = self.toTensorVector();
    return std::all_of(list.begin(), list.end(), fits);
  }

  c10::OperatorHandle functional_;
  const bool casts_;
};

struct OutFormRow {
  const char* name;
  const char* functional;
  bool casts = false; // out may have any type that results cast to, not only the first argument's
};

constexpr OutFormRow kOutForms[] = {
    {"_batch_norm_with_update.out", "aten::_batch_norm_with_update"},
    {"_chunk_cat.out", "aten::_chunk_cat", true},
    {"_native_batch_norm_legit.no_stats_out", "aten::_native_batch_norm_legit.no_stats"},
    {"_native_batch_norm_legit.out", "aten::_native_batch_norm_legit"},
    {"_slow_conv2d_forward.output", "aten::_slow_conv2d_forward"},
    {"adaptive_avg_pool2d.out", "aten::_adaptive_avg_pool2d"},
    {"adaptive_avg_pool3d.out", "aten::_adaptive_avg_pool3d"},
    {"adaptive_avg_pool3d_backward.grad_input", "aten::_adaptive_avg_pool3d_backward"},
    {"conj_physical.out", "aten::conj_physical"},
    {"convolution.out", "aten::convolution"},
    {"linalg_eigvals.out", "aten::_linalg_eigvals", true},
    {"mvlgamma.out", "aten::mvlgamma", true},
    {"native_batch_norm.out", "aten::native_batch_norm"},
    {"slow_conv3d_forward.output", "aten::slow_conv3d_forward"},
    {"slow_conv_transpose3d.out", "aten::slow_conv_transpose3d"},
};

} // namespace

void register_out_forms(torch::Library& m) {
  for (const OutFormRow& row : kOutForms) {
    implement(
        m, row.name, [&row] { return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<OutForm>(row.functional, row.casts)); });
  }
}

} // namespace torch_xla
