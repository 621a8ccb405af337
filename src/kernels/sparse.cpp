// Sparse tensors: their parts are device tensors; CPU-only operations on them run on the CPU.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <ATen/ops/index.h>
#include <ATen/ops/tensor.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "aten/boxed_call.h"
#include "aten/fallback.h"
#include "kernels/register.h"
#include "trace/cell.h"

namespace at::native {
// As in FlattenIndicesCommon.h, a header that PyTorch does not install.
DECLARE_DISPATCH(at::Tensor (*)(const at::Tensor&, c10::IntArrayRef), flatten_indices_stub)
} // namespace at::native

namespace torch_xla {
namespace {

using c10::DispatchKey;

// ATen's kernels of these only assemble or split parts, so the CPU's run on the parts of any device.
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

// The parts of a new sparse tensor are on the current device.
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

// For int64 indices [sparse dims, elements]: each element's place in a dense tensor of that size, int64 [elements].
at::Tensor flatten_indices(const at::Tensor& indices, c10::IntArrayRef size) {
  const Dims strides = contiguous_strides(to_dims(size));
  return indices.mul(at::tensor(c10::IntArrayRef(strides.begin(), strides.end()), at::kLong).to(indices.device()).unsqueeze(1)).sum(0);
}

// ---- Dense tensors, read and written at a sparse one's elements: optimizers' work, recorded on the parts ----

// One tensor of indices for each sparse dim.
c10::List<std::optional<at::Tensor>> indices_of(const at::Tensor& sparse) {
  c10::List<std::optional<at::Tensor>> result;
  for (const at::Tensor& dim : sparse._indices().unbind(0)) {
    result.push_back(dim);
  }
  return result;
}

bool is_dense_pair(const at::Tensor& dense, const at::Tensor& sparse) {
  return dense.is_privateuseone() && dense.layout() == c10::kStrided && sparse.layout() == c10::kSparse &&
      dense.device() == sparse.device() && dense.sizes() == sparse.sizes() && dense.scalar_type() == sparse.scalar_type() &&
      sparse.sparse_dim() > 0 && sparse._nnz() > 0;
}

void add_to_dense(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  at::Tensor self = torch::jit::peek(*stack, 0, 3).toTensor();
  const at::Tensor other = torch::jit::peek(*stack, 1, 3).toTensor();
  const at::Scalar alpha = torch::jit::peek(*stack, 2, 3).toScalar();
  if (!self.is_floating_point() || alpha.isComplex() || !is_dense_pair(self, other) || !self.is_non_overlapping_and_dense()) {
    run_on_cpu<DispatchKey::SparseCPU>(op, keys, stack);
    return;
  }
  self.index_put_(indices_of(other), other._values().mul(alpha), /*accumulate=*/true);
  torch::jit::drop(*stack, 3);
  torch::jit::push(*stack, self);
}

void take_from_dense(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const at::Tensor self = torch::jit::peek(*stack, 0, 2).toTensor();
  const at::Tensor mask = torch::jit::peek(*stack, 1, 2).toTensor();
  if (!is_dense_pair(self, mask)) {
    run_on_cpu<DispatchKey::SparseCPU>(op, keys, stack);
    return;
  }
  at::Tensor taken = at::_sparse_coo_tensor_with_dims_and_tensors(
      mask.sparse_dim(),
      mask.dense_dim(),
      mask.sizes(),
      mask._indices(),
      at::index(self, indices_of(mask)),
      mask.options(),
      mask.is_coalesced());
  torch::jit::drop(*stack, 2);
  torch::jit::push(*stack, taken);
}

bool returns_view(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
    return result.alias_info() && !result.alias_info()->isWrite();
  });
}

template <DispatchKey kCpuKey>
torch::CppFunction kernel_of(const c10::OperatorHandle& op) {
  const std::string name = c10::toString(op.operator_name());
  if (kCpuKey == DispatchKey::SparseCPU && name == "aten::add_.Tensor") {
    return torch::CppFunction::makeFromBoxedFunction<&add_to_dense>();
  }
  if (kCpuKey == DispatchKey::SparseCPU && name == "aten::sparse_mask") {
    return torch::CppFunction::makeFromBoxedFunction<&take_from_dense>();
  }
  bool structural =
      returns_view(op.schema()) || std::find(kStructural.begin(), kStructural.end(), op.operator_name().name) != kStructural.end();
  return structural ? torch::CppFunction::makeFromBoxedFunction<&call_cpu_kernel<kCpuKey>>()
                    : torch::CppFunction::makeFromBoxedFunction<&run_on_cpu<kCpuKey>>();
}

// A kernel at `key` for each operation with one at the CPU's key.
template <DispatchKey kCpuKey>
void register_sparse(DispatchKey key) {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__); // never destroyed
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    auto op = name.name.starts_with("aten::") ? dispatcher.findSchema(name) : std::nullopt;
    if (!op || !op->hasKernelForDispatchKey(kCpuKey)) {
      continue;
    }
    library->impl(c10::toString(name).c_str(), kernel_of<kCpuKey>(*op));
  }
}

} // namespace

void register_sparse_kernels() {
  register_sparse<DispatchKey::SparseCPU>(DispatchKey::SparsePrivateUse1);
  register_sparse<DispatchKey::SparseCsrCPU>(DispatchKey::SparseCsrPrivateUse1);
}

} // namespace torch_xla

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &torch_xla::flatten_indices)
} // namespace at::native
