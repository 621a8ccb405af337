// Records the barrier: one node that takes and gives all tensors.
#include "kernels/barrier.h"

#include <torch/library.h>

#include "core/errors.h"
#include "kernels/register.h"
#include "ops/registry.h"
#include "recording/recording.h"
#include "trace/cut.h"

namespace torch_xla {
namespace {

// What no node may take has been computed already: there is nothing to keep apart.
std::vector<at::Tensor> find_recordable(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> found;
  for (const at::Tensor& t : tensors) {
    XLA_CHECK_KIND(
        Value, t.is_privateuseone(), "optimization_barrier_ expected tensors on the device xla, but got one on ", t.device().str());
    if (t.numel() > 0 && is_recordable(to_dtype(t.scalar_type()))) {
      found.push_back(t);
    }
  }
  return found;
}

void record_barrier(int device, const std::vector<at::Tensor>& tensors) {
  static const Op& op = get_op("xla::optimization_barrier");
  Recording recording(device);
  InlineVec<ValueId, 4> operands;
  std::vector<Type> types;
  for (const at::Tensor& t : tensors) {
    operands.push_back(recording.read(t));
    types.push_back(recording.type(operands.back()));
  }
  ValueId first = recording.node(op, std::move(operands), {static_cast<int64_t>(tensors.size())}, types);
  for (size_t i = 0; i < tensors.size(); ++i) {
    recording.write(tensors[i], first + static_cast<ValueId>(i));
  }
}

} // namespace

void optimization_barrier(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> recorded = find_recordable(tensors);
  if (!recorded.empty()) {
    record_barrier(recorded[0].get_device(), recorded);
  }
}

void register_barrier() {
  static auto* library = new torch::Library(torch::Library::FRAGMENT, "xla", std::nullopt, __FILE__, __LINE__); // never destroyed
  library->def("optimization_barrier(Tensor[] tensors) -> Tensor[]");
}

} // namespace torch_xla
