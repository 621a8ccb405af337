// Copies elements before they are overwritten. Indices are copied too: their memory may be reused before the undo.
#include "engine/cpu/library/parts.h"

#include <ATen/ops/gather.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/take.h>
#include <c10/core/InferenceMode.h>

#include <utility>

#include "core/errors.h"

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

Undo save_selected(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  return make_undo([=, before = at::index_select(self, dim, index)] { self.index_copy_(dim, index, before); });
}

Undo save_gathered(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  return make_undo([=, before = at::gather(self, dim, index)] { self.scatter_(dim, index, before); });
}

Undo save_indexed(const at::Tensor& self, const std::vector<std::optional<at::Tensor>>& given) {
  c10::List<std::optional<at::Tensor>> indices;
  for (const std::optional<at::Tensor>& index : given) {
    indices.push_back(index && index->defined() ? std::make_optional(copy_index(*index)) : std::nullopt);
  }
  return make_undo([=, before = at::index(self, indices)] { self.index_put_(indices, before); });
}

Undo save_taken(const at::Tensor& self, const at::Tensor& index) {
  return make_undo([=, before = at::take(self, index)] { self.put_(index, before); });
}

} // namespace

Undo save_part(Written part, const torch::jit::Stack& arguments) {
  const at::Tensor self = arguments[0].toTensor();
  switch (part) {
    case Written::kSelected:
      return save_selected(self, arguments[1].toInt(), copy_index(arguments[2].toTensor()));
    case Written::kGathered:
      return save_gathered(self, arguments[1].toInt(), copy_index(arguments[2].toTensor()));
    case Written::kIndexed:
      return save_indexed(self, arguments[1].toOptionalTensorVector());
    case Written::kTaken:
      return save_taken(self, copy_index(arguments[1].toTensor()));
    default:
      XLA_ASSERT(false, "no part is written");
  }
}

Undo save_whole(const at::Tensor& self) {
  at::Tensor before = self.clone();
  return make_undo([=] { self.copy_(before); });
}

} // namespace torch_xla::cpu
