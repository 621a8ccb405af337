// Products with weights of 8 and 4 bits in ATen's forms.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/cpu/library/call.h"

namespace torch_xla::cpu {

// Whether multiply_int8() computes a call of _weight_int8pack_mm. Operands: a [M, K], weight [N, K], scales [N].
bool is_int8_product(const CallSpec& call);
void multiply_int8(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// Whether multiply_int4() computes a call of _weight_int4pack_mm_for_cpu. Operands: a [M, K], packed [N, K / 2], scales and zeros
// [K / group, N, 2].
bool is_int4_product(const CallSpec& call);
void multiply_int4(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// Numbers of the weight, by threads.
Work work_of_weights(const CallSpec& call);

} // namespace torch_xla::cpu
