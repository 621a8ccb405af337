// copy_ within an XLA device, between several, and to and from the CPU.
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/copy_native.h>
#include <torch/library.h>

#include "core/errors.h"
#include "engine/engine.h"
#include "kernels/register.h"
#include "recording/copy.h"
#include "recording/recording.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
      a.strides() == b.strides() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

at::Tensor& copy_kernel(at::Tensor& self, const at::Tensor& source, bool /*non_blocking*/) {
  TORCH_CHECK(self.defined() && source.defined(), "copy_ needs two defined tensors");
  try {
    at::Tensor from = source.sizes() == self.sizes() ? source : source.expand(self.sizes());
    if (self.numel() == 0) {
      return self;
    }
    if (same_memory(self, source)) {
      return self;
    }
    bool recordable = is_recordable(to_dtype(self.scalar_type())) && is_recordable(to_dtype(from.scalar_type()));
    if (source._is_zerotensor()) {
      self.zero_();
    } else if (!is_xla_tensor(self)) {
      download(self, from);
    } else if (from.device() != self.device()) {
      at::assert_no_internal_overlap(self);
      if (!from.is_cpu() && !engine().why_no_values().empty()) {
        return self; // no values are there to copy
      }
      write_from_cpu(self, is_xla_tensor(from) ? read_on_cpu(from) : from);
    } else if (recordable) {
      at::assert_no_internal_overlap(self);
      at::assert_no_partial_overlap(self, source);
      record_copy(self, from);
    } else {
      write_from_cpu(self, read_on_cpu(from));
    }
  } catch (const UserError& error) {
    throw_as_torch_error(error);
  }
  return self;
}

// PyTorch asks the kernel of `meta` where one of the two tensors is there. To a device without values there is nothing to copy.
at::Tensor& copy_with_meta(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (is_xla_tensor(self) && !engine().why_no_values().empty()) {
    source.expand(self.sizes()); // for its error
    return self;
  }
  return at::native::copy_(self, source, non_blocking);
}

at::Tensor copy_from_kernel(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  at::Tensor target = destination;
  copy_kernel(target, self, non_blocking);
  return destination;
}

at::Tensor copy_from_and_resize_kernel(const at::Tensor& self, const at::Tensor& destination) {
  at::Tensor target = destination;
  target.resize_(self.sizes());
  copy_kernel(target, self, false);
  return destination;
}

} // namespace

void register_copies_of_meta() {
  static auto* library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
    made->impl("copy_", TORCH_FN(copy_with_meta));
    return made;
  }();
  static_cast<void>(library);
}

void register_copies(torch::Library& m) {
  m.impl("copy_", TORCH_FN(copy_kernel));
  m.impl("_copy_from", TORCH_FN(copy_from_kernel));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize_kernel));
}

} // namespace torch_xla
