// Shardings of tensors' contents.
#pragma once

#include <optional>

#include "trace/cell.h"

namespace torch_xla {

// Cuts the cell's value, which only the host has, over the devices if the cell has a mark for it. The caller holds the recording lock.
void place_as_marked(Cell& cell);
// How the content of the tensor is cut: as marked, as recorded, or as the compiler chose. Nothing where that is not settled: the content is
// pending, only the host has it, or the tensor shows it in other dims. Takes the recording lock.
std::optional<Sharding> find_sharding(const at::Tensor& tensor);
// Forgets the tensor's mark; its content stays where it is. Takes the recording lock.
void clear_mark(const at::Tensor& tensor);

} // namespace torch_xla
