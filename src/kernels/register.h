// Registration of the device's kernels with PyTorch: all of them, and those of each file in this folder.
#pragma once

namespace torch {
class Library;
}

namespace torch_xla {

// Registers kernels and fallback with PyTorch, once; register_device() calls it.
void register_kernels();

void register_basic_kernels(torch::Library& library);
void register_copies(torch::Library& library);
void register_nested_kernels(torch::Library& library);
void register_numbers(torch::Library& library);
void register_batch_norm(torch::Library& library);
void register_batch_norm_steps(torch::Library& library);
void register_convolutions(torch::Library& library);
void register_composed(torch::Library& library);
void register_linalg(torch::Library& library);
void register_factories(torch::Library& library);
void register_out_forms(torch::Library& library);
void register_optimizers(torch::Library& library);
void register_transformer_layers(torch::Library& library);
// Lets tensors on `meta` move to a device that computes no values. Called if there is one.
void register_copies_of_meta();
// Also registered at the autograd key: they compose differentiable rows.
void register_attention(torch::Library& library);
void register_rnn(torch::Library& library);
void register_checked_values(torch::Library& library);
void register_barrier(); // the schema for the preparation of library calls
void register_donation(); // torch.ops.xla.dynamo_set_buffer_donor_
void register_sparse_kernels();
void register_quantized_layers();

} // namespace torch_xla
