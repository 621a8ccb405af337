// Attention by our own kernels: of few queries, and of many where oneDNN is faster than ATen's products.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/cpu/library/call.h"

namespace torch_xla::cpu {

// Whether attend_by_few() computes a call of flash attention. Operands: query, key, value, perhaps a mask.
bool has_few_queries(const CallSpec& call);
// The same before operands have strides.
bool has_few_queries(const Graph& graph, const Node& call);
// Outs: the output and logsumexp.
void attend_by_few(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs, const Attrs& attrs);
// Whether attend_to_many() computes a call, and is faster than ATen. It takes rows without gaps.
bool has_many_queries(const CallSpec& call);
void attend_to_many(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs, const Attrs& attrs);
// Numbers of keys and values, by threads.
Work work_of_few_queries(const CallSpec& call);

} // namespace torch_xla::cpu
