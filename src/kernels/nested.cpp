// Nested tensors of layout torch.strided: their buffers are device tensors; CPU-only operations on them run on the CPU.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_nested_from_padded.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>
#include <torch/library.h>

#include "aten/fallback.h"
#include "kernels/register.h"

namespace torch_xla {
namespace {

using c10::DispatchKey;

// ATen's kernel, composed of operations on the buffers.
void call_cpu_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  op.callBoxedForDispatchKey(DispatchKey::NestedTensorCPU, *stack);
}

// ATen copies buffers only of contiguous nested tensors.
void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = torch::jit::peek(*stack, i, arguments.size());
    const bool is_written = arguments[i].alias_info() && arguments[i].alias_info()->isWrite();
    if (value.isTensor() && value.toTensor().is_nested() && !is_written && !value.toTensor().is_contiguous()) {
      value = value.toTensor().contiguous();
    }
  }
  run_fallback(op, stack, "nested tensors are computed on the CPU", DispatchKey::NestedTensorCPU);
}

// ATen has kernels for HPU, a device outside its tree, if an operation's kernel takes buffers of any device. Layer norm's look up the
// buffer's device in ATen's own table. The offsets are a CPU tensor for any device.
bool takes_any_buffer(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return (op.hasKernelForDispatchKey(DispatchKey::NestedTensorHPU) && !name.starts_with("aten::native_layer_norm")) ||
      name == "aten::_nested_tensor_storage_offsets";
}

// `sizes` is a CPU tensor.
at::Tensor nested_from_padded(const at::Tensor& padded, const at::Tensor& sizes, bool fuse_transform_0213) {
  return at::_nested_from_padded(padded.cpu(), sizes, fuse_transform_0213).to(padded.device());
}

} // namespace

void register_nested_kernels(torch::Library& m) {
  m.impl("_nested_from_padded", TORCH_FN(nested_from_padded));
  m.impl("_nested_view_from_buffer", TORCH_FN(at::native::_nested_view_from_buffer)); // reads no values
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", DispatchKey::NestedTensorPrivateUse1, __FILE__, __LINE__);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    auto op = name.name.starts_with("aten::") ? dispatcher.findSchema(name) : std::nullopt;
    if (!op || !op->hasKernelForDispatchKey(DispatchKey::NestedTensorCPU)) {
      continue;
    }
    library->impl(
        c10::toString(name).c_str(),
        takes_any_buffer(*op) ? torch::CppFunction::makeFromBoxedFunction<&call_cpu_kernel>()
                              : torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  }
}

} // namespace torch_xla
