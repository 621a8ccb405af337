// Counts the functional collectives, which PyTorch's own kernels run on the process group.
#include "distributed/functional.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "core/metrics.h"

namespace torch_xla {
namespace {

constexpr const char* kNamespace = "_c10d_functional";

class CountedKernel final : public c10::OperatorKernel {
 public:
  explicit CountedKernel(const std::string& name) : counter_(metrics::find_or_create_counter("xla::" + name)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    counter_.add();
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack); // PyTorch has one kernel for all devices
  }

 private:
  metrics::Counter& counter_;
};

} // namespace

void register_functional_collectives() {
  static auto* library = // never destroyed, as the kernels of the device
      new torch::Library(torch::Library::IMPL, kNamespace, c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  for (const char* name : {"all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "broadcast"}) {
    library->impl(name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<CountedKernel>(name)));
  }
}

} // namespace torch_xla
