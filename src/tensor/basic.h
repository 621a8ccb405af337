// Kernels that are not rows: storage, views, copies, and calls with a shape of their own.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensor/api.h"
#include "tensor/copy.h"

namespace torch {
class Library;
}

namespace torch_xla {

void register_basic_kernels(torch::Library& library);
void register_batch_norm(torch::Library& library);
void register_transformer_layers(torch::Library& library);
// These compose differentiable rows, so they are registered at the autograd key too.
void register_attention(torch::Library& library);
void register_rnn(torch::Library& library);
void register_sparse_kernels();
void register_fallback();

// Defined in copy.cpp.
at::Tensor& copy_kernel(at::Tensor& self, const at::Tensor& source, bool non_blocking);
at::Tensor copy_from_kernel(const at::Tensor& self, const at::Tensor& destination, bool non_blocking);
at::Tensor copy_from_and_resize_kernel(const at::Tensor& self, const at::Tensor& destination);
at::Scalar local_scalar_dense_kernel(const at::Tensor& self);

} // namespace torch_xla
