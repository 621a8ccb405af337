// Copies elements before they are overwritten. Indices are copied too: their memory may be reused before the undo.
#include "engine/cpu/library/parts.h"

#include <ATen/ops/gather.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/take.h>
#include <c10/core/InferenceMode.h>

#include <utility>

namespace torch_xla::cpu {
namespace {

// Numbers of elements; masks stay masks.
at::Tensor copy_index(const at::Tensor& index) {
  const bool is_mask = index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
  return index.to(is_mask ? at::kBool : at::kLong, /*non_blocking=*/false, /*copy=*/true);
}

// `write` in the mode in which the calls' tensors were made.
template <typename Write>
Undo make_undo(Write write) {
  return [write = std::move(write)] {
    c10::InferenceMode inference;
    write();
  };
}

} // namespace

Undo save_selected(const torch::jit::Stack& arguments) {
  at::Tensor self = arguments[0].toTensor();
  int64_t dim = arguments[1].toInt();
  at::Tensor index = copy_index(arguments[2].toTensor());
  at::Tensor part = at::index_select(self, dim, index);
  return make_undo([=] { self.index_copy_(dim, index, part); });
}

Undo save_scattered(const torch::jit::Stack& arguments) {
  at::Tensor self = arguments[0].toTensor();
  int64_t dim = arguments[1].toInt();
  at::Tensor index = copy_index(arguments[2].toTensor());
  at::Tensor part = at::gather(self, dim, index);
  return make_undo([=] { self.scatter_(dim, index, part); });
}

Undo save_indexed(const torch::jit::Stack& arguments) {
  at::Tensor self = arguments[0].toTensor();
  c10::List<std::optional<at::Tensor>> indices;
  for (const std::optional<at::Tensor>& index : arguments[1].toOptionalTensorVector()) {
    indices.push_back(index && index->defined() ? std::make_optional(copy_index(*index)) : std::nullopt);
  }
  at::Tensor part = at::index(self, indices);
  return make_undo([=] { self.index_put_(indices, part); });
}

Undo save_taken(const torch::jit::Stack& arguments) {
  at::Tensor self = arguments[0].toTensor();
  at::Tensor index = copy_index(arguments[1].toTensor());
  at::Tensor part = at::take(self, index);
  return make_undo([=] { self.put_(index, part); });
}

Undo save_whole(const at::Tensor& self) {
  at::Tensor before = self.clone();
  return make_undo([=] { self.copy_(before); });
}

} // namespace torch_xla::cpu
