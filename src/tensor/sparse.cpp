// Sparse tensors: their parts are device tensors, and what the CPU computes on sparse tensors runs there.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "tensor/boxed_call.h"
#include "tensor/fallback.h"
#include "tensor/register.h"

namespace torch_xla {
namespace {

using c10::DispatchKey;

// ATen's kernels of these only put parts together or take them apart, so the CPU's run on the parts of any device.
constexpr std::array<std::string_view, 16> kStructural = {
    "aten::_coalesced_",
    "aten::_dimI",
    "aten::_dimV",
    "aten::_nnz",
    "aten::_sparse_coo_tensor_with_dims",
    "aten::_sparse_coo_tensor_with_dims_and_tensors",
    "aten::clone",
    "aten::copy_",
    "aten::copy_sparse_to_sparse_",
    "aten::dense_dim",
    "aten::empty",
    "aten::empty_like",
    "aten::is_coalesced",
    "aten::sparse_dim",
    "aten::sparse_resize_",
    "aten::sparse_resize_and_clear_",
};

// The parts of a new sparse tensor lie on the current device.
template <DispatchKey kCpuKey>
void call_cpu_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  int device = device_of_call(torch::jit::last(*stack, op.schema().arguments().size()));
  const c10::DeviceGuard guard(c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)));
  op.callBoxedForDispatchKey(kCpuKey, *stack);
}

template <DispatchKey kCpuKey>
void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  run_fallback(op, stack, "sparse tensors are computed on the CPU", kCpuKey);
}

bool returns_view(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
    return result.alias_info() && !result.alias_info()->isWrite();
  });
}

// A kernel at `key` for each operation that has one at the CPU's key.
template <DispatchKey kCpuKey>
void register_sparse(DispatchKey key) {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__); // never destroyed
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    auto op = name.name.starts_with("aten::") ? dispatcher.findSchema(name) : std::nullopt;
    if (!op || !op->hasKernelForDispatchKey(kCpuKey)) {
      continue;
    }
    bool structural = returns_view(op->schema()) || std::find(kStructural.begin(), kStructural.end(), name.name) != kStructural.end();
    library->impl(
        c10::toString(name).c_str(),
        structural ? torch::CppFunction::makeFromBoxedFunction<&call_cpu_kernel<kCpuKey>>()
                   : torch::CppFunction::makeFromBoxedFunction<&run_on_cpu<kCpuKey>>());
  }
}

} // namespace

void register_sparse_kernels() {
  register_sparse<DispatchKey::SparseCPU>(DispatchKey::SparsePrivateUse1);
  register_sparse<DispatchKey::SparseCsrCPU>(DispatchKey::SparseCsrPrivateUse1);
}

} // namespace torch_xla
