// Rows by name: those of the op tables, of the primitives and of the views.
#pragma once

#include <string_view>

#include "ir/op.h"

namespace torch_xla {

const Op* find_op(std::string_view name); // or null
// The row as a library call of ATen's kernel, for operands that the row itself does not compute on; lives as long as the process.
const Op& library_form(const Op& op);
const Op& get_op(std::string_view name); // InternalError when there is no such row

} // namespace torch_xla
