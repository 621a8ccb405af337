// Takes, writes or adds rows of a tensor by an index: ATen's kernels handle each number separately, or start over for each row.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/cpu/library/call.h"
#include "engine/cpu/threads/leave.h"

namespace torch_xla::cpu {

// Operands: self [.., n, ..], None for each dim before the indexed one, index of int64 or int32, and the written values, if the call
// writes. Whether the call has one index, and all operands are row-major, not empty and not expanded.
bool takes_rows(const CallSpec& call);
bool writes_rows(const CallSpec& call);
bool adds_rows(const CallSpec& call);
// Operands: self [n, ..], an index [m] expanded to [m, ..], the added values [m, ..]: scatter_add as graph networks call it.
bool adds_expanded_rows(const CallSpec& call);
// Operands: the gradient [.., columns], index of the gradient's other dims.
bool adds_embedding_rows(const CallSpec& call);

// Whether every index is in [0, n), or in [-n, n) if negative ones count from the end. The kernels do not check.
bool are_rows(const std::vector<at::Tensor>& operands);
bool are_rows_from_both_ends(const std::vector<at::Tensor>& operands);
bool are_expanded_rows(const std::vector<at::Tensor>& operands);

// Kernels, see CallKernel. Those that write or add use outs[0], which holds self. A repeated row is written, or added to, in the order of
// the index, as by ATen.
void take_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);
void write_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);
void add_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);
void add_expanded_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);
// Writes zeros first.
void add_embedding_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

} // namespace torch_xla::cpu
