// torch.ops.xla.dynamo_set_buffer_donor_: the mark of donated memory, as an operation.
#include <torch/library.h>

#include "kernels/register.h"
#include "program/donation.h"

namespace torch_xla {
namespace {

at::Tensor set_buffer_donor(const at::Tensor& tensor, bool on) {
  set_buffer_donation(tensor, on);
  return tensor;
}

at::Tensor keep(const at::Tensor& tensor, bool /*on*/) {
  return tensor;
}

} // namespace

void register_donation() {
  static auto* library = new torch::Library(torch::Library::FRAGMENT, "xla", std::nullopt, __FILE__, __LINE__); // never destroyed
  library->def("dynamo_set_buffer_donor_(Tensor t, bool should_donate) -> Tensor");
  library->impl("dynamo_set_buffer_donor_", c10::DispatchKey::PrivateUse1, torch::CppFunction(&set_buffer_donor));
  library->impl("dynamo_set_buffer_donor_", c10::DispatchKey::CompositeExplicitAutograd, torch::CppFunction(&keep));
}

} // namespace torch_xla
