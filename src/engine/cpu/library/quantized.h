// Products with weights of 8 and 4 bits in ATen's forms; convolutions of 8-bit integers.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/cpu/library/call.h"
#include "engine/cpu/library/packed.h"

namespace torch_xla::cpu {

// Whether multiply_int8() computes a call of _weight_int8pack_mm. Operands: a [M, K], weight [N, K], scales [N].
bool is_int8_product(const CallSpec& call);
void multiply_int8(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// Whether multiply_int4() computes a call of _weight_int4pack_mm_for_cpu. Operands: a [M, K], packed [N, K / 2], scales and zeros
// [K / group, N, 2].
bool is_int4_product(const CallSpec& call);
void multiply_int4(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// Of the pass integer_products().
bool reads_integers(DType dtype, int64_t rows, int64_t inner);

// Numbers of the weight, by threads.
Work work_of_weights(const CallSpec& call);

// Whether the processor sums products of 8-bit integers without rounding them to 16 bits in between.
bool convolves_integers();
// The kernel of xla::quantized_convolution, whose weight can be packed.
void convolve_integers(const c10::OperatorHandle& op, torch::jit::Stack* stack);
extern const Packing kPackedIntegers;

} // namespace torch_xla::cpu
