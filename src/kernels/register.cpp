// Registration of all kernels of the device, in one place.
#include <torch/library.h>

#include "aten/fallback.h"
#include "aten/rows.h"
#include "kernels/composite.h"
#include "kernels/register.h"

namespace torch_xla {

void register_kernels() {
  // Never destroyed: the dispatcher is used until the process ends.
  static auto* kernels = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  static auto* autograd = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  static bool once = [] {
    register_basic_kernels(*kernels);
    register_copies(*kernels);
    register_nested_kernels(*kernels);
    register_numbers(*kernels);
    // Composite in ATen: no layer above asks for a view's gradient function, which would update it before `.data =`.
    autograd->impl("_has_compatible_shallow_copy_type", torch::CppFunction::makeFallthrough());
    autograd->impl("is_nonzero", torch::CppFunction::makeFallthrough());
    autograd->impl("_local_scalar_dense", torch::CppFunction::makeFallthrough()); // a number has no gradient
    register_batch_norm(*kernels);
    register_batch_norm_steps(*kernels);
    register_convolutions(*kernels);
    register_composed(*kernels);
    register_linalg(*kernels);
    register_factories(*kernels);
    register_out_forms(*kernels);
    register_optimizers(*kernels);
    register_transformer_layers(*kernels);
    register_rows({*kernels, *autograd});
    for (torch::Library* library : {kernels, autograd}) {
      register_attention(*library);
      register_rnn(*library);
      register_checked_values(*library);
    }
    register_barrier();
    register_custom_calls();
    register_donation();
    register_sparse_kernels();
    register_quantized_layers();
    register_fallback();
    return true;
  }();
  (void)once;
}

} // namespace torch_xla
