// Reads one element as a number; the program waits for it.
#include <ATen/ops/is_nonzero_native.h>
#include <torch/library.h>

#include <utility>

#include "core/metrics.h"
#include "kernels/register.h"
#include "recording/copy.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

thread_local const char* use_of_number = "item"; // for the observers

at::Scalar local_scalar_dense_kernel(const at::Tensor& self) {
  static metrics::Counter& count = metrics::find_or_create_counter("aten::_local_scalar_dense");
  count.add();
  try {
    return read_number(self, use_of_number);
  } catch (const UserError& error) {
    throw_as_torch_error(error);
  }
}

// Composite in ATen: here only so that observers tell branches from other reads.
bool is_nonzero_kernel(const at::Tensor& self) {
  struct Use {
    const char* outer = std::exchange(use_of_number, "bool");
    ~Use() {
      use_of_number = outer;
    }
  } use;
  return at::native::is_nonzero(self);
}

} // namespace

void register_numbers(torch::Library& m) {
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense_kernel));
  m.impl("is_nonzero", TORCH_FN(is_nonzero_kernel));
}

} // namespace torch_xla
