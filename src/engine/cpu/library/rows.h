// Rows of a tensor that an index names, taken, written or added to: ATen's kernels for them take each number by itself, or begin anew for
// each row.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/cpu/library/call.h"
#include "engine/cpu/threads/leave.h"

namespace torch_xla::cpu {

// Operands: self [.., n, ..], None for each dim before the indexed one, index of int64 or int32, and what is written, if the call writes.
// Whether the index is the only one and all is row-major, has elements, and has no more than one form: what is written is not expanded.
bool takes_rows(const CallSpec& call);
bool writes_rows(const CallSpec& call);
bool adds_rows(const CallSpec& call);
// Operands: self [n, ..], an index [m] expanded to [m, ..], what is added [m, ..]: scatter_add, as graph networks call it.
bool adds_expanded_rows(const CallSpec& call);
// Operands: the gradient [.., columns], index of the gradient's other dims.
bool adds_embedding_rows(const CallSpec& call);

// Whether every index is within [0, n), or [-n, n) where negative ones count from the end. The kernels read without a look.
bool are_rows(const std::vector<at::Tensor>& operands);
bool are_rows_from_both_ends(const std::vector<at::Tensor>& operands);
bool are_expanded_rows(const std::vector<at::Tensor>& operands);

// Kernels, see CallKernel. Those that write and add do so into outs[0], which holds self. Rows that are named several times are written,
// and added, in the order of the index, as by ATen.
void take_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);
void write_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);
void add_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);
void add_expanded_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);
// Writes zeros first.
void add_embedding_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

} // namespace torch_xla::cpu
