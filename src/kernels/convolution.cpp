// Convolutions under PyTorch's tracer, which skips aten::convolution and records aten::_convolution: ATen's kernel calls that.
#include <ATen/TracerMode.h>
#include <ATen/ops/convolution.h>
#include <torch/library.h>

#include "aten/missing_operators.h"
#include "aten/rows.h"
#include "kernels/register.h"
#include "ops/registry.h"

namespace torch_xla {
namespace {

// The boxed kernel of aten::convolution.
class Convolution final : public c10::OperatorKernel {
 public:
  Convolution() : recorded_(serve(get_op("aten::convolution"), Convention::kFunctional, "")), traced_(get_operator("aten::_convolution")) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    if (!at::tracer::impl::is_dispatch_enabled()) {
      recorded_.callBoxed(op, keys, stack);
      return;
    }
    torch::jit::push(*stack, /*benchmark=*/false, /*deterministic=*/false, /*cudnn_enabled=*/false, /*allow_tf32=*/false);
    traced_.callBoxed(stack);
  }

 private:
  c10::BoxedKernel recorded_;
  c10::OperatorHandle traced_;
};

// Called by files of traced modules. The flags concern other devices' libraries.
at::Tensor convolve_with_flags(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups,
    bool /*benchmark*/,
    bool /*deterministic*/,
    bool /*cudnn_enabled*/,
    bool /*allow_tf32*/) {
  return at::convolution_symint(input, weight, bias, stride, padding, dilation, transposed, output_padding, std::move(groups));
}

} // namespace

void register_convolutions(torch::Library& m) {
  implement(m, "convolution", [] { return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Convolution>()); });
  m.impl("_convolution", TORCH_FN(convolve_with_flags));
}

} // namespace torch_xla
