// Determinants. ATen factors the transpose of a row-major matrix, and the gradient reads the strides again to find the factored one. A
// run's memory has its own order, so rows get row-major matrices, and the transpose of others.
#include <torch/library.h>

#include "aten/missing_operators.h"
#include "aten/rows.h"
#include "kernels/register.h"
#include "ops/registry.h"

namespace torch_xla {
namespace {

// The boxed kernel of aten::_linalg_det and aten::_linalg_slogdet: the transpose has the same determinant. ATen never transposes complex
// matrices.
class Determinant final : public c10::OperatorKernel {
 public:
  explicit Determinant(const Op& row) : recorded_(serve(row, Convention::kFunctional, "")) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    at::Tensor matrix = stack->back().toTensor();
    if (!matrix.is_contiguous() && !matrix.is_complex() && matrix.dim() >= 2) {
      stack->back() = matrix.mT().contiguous(); // the CPU fallback then sees the same order
    }
    recorded_.callBoxed(op, keys, stack);
  }

 private:
  c10::BoxedKernel recorded_;
};

} // namespace

void register_linalg(torch::Library& m) {
  const Op& det = get_op("aten::_linalg_det");
  const Op& slogdet = get_op("aten::_linalg_slogdet");
  auto factor = [&m](const char* name, const Op& row) {
    implement(m, name, [&row] { return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Determinant>(row)); });
  };
  auto out_form = [&m](const char* name, const Op& row, const char* overload) {
    implement(m, name, [&] { return torch::CppFunction::makeFromBoxedKernel(serve(row, Convention::kOut, overload)); });
  };
  factor("_linalg_det", det);
  out_form("_linalg_det.result", det, "result");
  factor("_linalg_slogdet", slogdet);
  out_form("_linalg_slogdet.sign", slogdet, "sign");
}

} // namespace torch_xla
